"""What the hooks see of a step, on real training steps of small models."""

import copy
import io
from collections.abc import Iterator

import pytest
import torch
from torch import Tensor, nn

from trainparity.parity.recording.holders import Holders
from trainparity.parity.recording.perturb import Noise
from trainparity.parity.recording.watch import StepWatch


@pytest.fixture
def model() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 3))


@pytest.fixture
def optimizer(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.Adam(model.parameters(), lr=1e-2, betas=(0.8, 0.99))


@pytest.fixture
def watch(model: nn.Module, optimizer: torch.optim.Optimizer) -> Iterator[StepWatch]:
    watch = StepWatch(model, optimizer, sketch_size=64)
    yield watch
    watch.close()


X = torch.randn(8, 4, generator=torch.Generator().manual_seed(1))


def step(watch: StepWatch, model: nn.Module, optimizer: torch.optim.Optimizer, *parts: Tensor) -> dict[str, Tensor]:
    watch.begin()
    optimizer.zero_grad()
    for part in parts:
        (model(part).square().sum() / 8).backward()
    optimizer.step()
    return watch.end()


def test_gradients_weights_and_updates_are_exact_for_small_tensors(
    watch: StepWatch, model: nn.Module, optimizer: torch.optim.Optimizer
) -> None:
    before = [p.detach().clone() for p in model.parameters()]
    seen = step(watch, model, optimizer, X)
    gradients = [p.grad.norm() for p in model.parameters() if p.grad is not None]
    assert torch.allclose(seen["gradient/norm"].float(), torch.stack(gradients))
    moved = [(p - b).double().norm() for p, b in zip(model.parameters(), before, strict=True)]
    update = torch.linalg.vector_norm(seen["weight/sketch"] - seen["start/sketch"], dim=-1)
    assert torch.allclose(update, torch.stack(moved), rtol=1e-4)


def test_activations_do_not_depend_on_how_the_batch_is_cut(
    watch: StepWatch, model: nn.Module, optimizer: torch.optim.Optimizer
) -> None:
    state = {k: v.clone() for k, v in model.state_dict().items()}
    whole = step(watch, model, optimizer, X)
    model.load_state_dict(state)
    cut = step(watch, model, optimizer, X[1::2], X[0::2])
    seen = watch.forward.seen
    assert seen.names == ["(input)", "0", "1", "2", "(output)"] and seen.outputs == ["(output)"]
    assert torch.allclose(whole["activation/sketch"], cut["activation/sketch"], rtol=1e-5, atol=1e-5)
    given_back = whole["activation_gradient/sketch"], cut["activation_gradient/sketch"]
    assert torch.allclose(*given_back, rtol=1e-5, atol=1e-6)
    assert (given_back[0].norm(dim=1) > 0).tolist() == [False, True, True, True, True]  # data take no gradient
    assert whole["samples"] == cut["samples"] and cut["num_samples"] == 8
    assert whole["rank/rows"].tolist() == [[8]] and cut["rank/rows"].tolist() == [[4, 4]]
    other = step(watch, model, optimizer, X + 0.01)
    assert other["samples"] != whole["samples"]


class WithItsLoss(nn.Module):
    """Returns its loss, and beside it what that is made of, as language models do."""

    def __init__(self, inside: nn.Module) -> None:
        super().__init__()
        self.inside = inside

    def forward(self, data: Tensor) -> tuple[Tensor, Tensor]:
        made = self.inside(data)
        return made.square().sum() / 8, made


def test_what_the_loss_gives_each_pass_adds_up_to_what_it_gives_all(
    watch: StepWatch, model: nn.Module, optimizer: torch.optim.Optimizer
) -> None:
    own = WithItsLoss(copy.deepcopy(model))
    seen = step(watch, model, optimizer, X[:3], X[3:])
    assert seen["rank/given"].shape == (1, 2, 64) and seen["rank/given"].any(2).all()
    assert torch.allclose(seen["rank/given"][0].sum(0), seen["activation_gradient/sketch"][-1])
    inside = StepWatch(own, torch.optim.SGD(own.parameters(), lr=0.1), sketch_size=64)
    inside.begin()
    for part in (X[:3], X[3:]):
        own(part)[0].backward()
    inside.optimizer.step()
    assert torch.allclose(inside.end()["rank/given"], seen["rank/given"])
    inside.close()


def test_what_passes_are_given_is_left_out_where_they_share_a_loss(
    watch: StepWatch, model: nn.Module, optimizer: torch.optim.Optimizer
) -> None:
    watch.begin()
    (model(X[:3]).square().sum() + model(X[3:]).square().sum()).backward()
    optimizer.step()
    seen = watch.end()
    assert seen["rank/given"].shape == (1, 2, 64) and not seen["rank/given"].any()


def test_each_micro_batchs_own_gradient_adds_up_to_the_whole(
    watch: StepWatch, model: nn.Module, optimizer: torch.optim.Optimizer
) -> None:
    seen = step(watch, model, optimizer, X[:3], X[3:])
    assert seen["rank/micro"].shape == (1, 2, 256)
    assert torch.allclose(seen["rank/micro"].sum(1), seen["rank/total"], atol=1e-6)
    assert seen["rank/held"][0, 0] == 0 and seen["rank/held"][0, 1] > 0


def test_clipping_is_seen_before_it_happens_however_it_was_imported(
    watch: StepWatch, model: nn.Module, optimizer: torch.optim.Optimizer
) -> None:
    from torch.nn.utils import clip_grad_norm_

    watch.begin()
    model(X).square().sum().backward()
    norm = clip_grad_norm_(model.parameters(), 0.1)
    optimizer.step()
    seen = watch.end()
    assert float(seen["gradient_norm"]) == pytest.approx(float(norm))
    assert float(torch.linalg.vector_norm(seen["applied/norm"])) == pytest.approx(0.1, rel=1e-3)
    assert seen["clip/calls"] == 1 and seen["clip/max_norm"] == 0.1 and seen["clip/backwards"] == 1


def test_gradients_that_come_after_clipping_are_recorded_as_they_are_applied(
    watch: StepWatch, model: nn.Module, optimizer: torch.optim.Optimizer
) -> None:
    watch.begin()
    optimizer.zero_grad()
    nn.utils.clip_grad_norm_(model.parameters(), 0.1)
    model(X).square().sum().backward()
    optimizer.step()
    seen = watch.end()
    assert torch.equal(seen["gradient/norm"], seen["applied/norm"]) and seen["gradient/norm"].all()


def test_gradients_clipped_twice_are_recorded_before_both(
    watch: StepWatch, model: nn.Module, optimizer: torch.optim.Optimizer
) -> None:
    watch.begin()
    model(X).square().sum().backward()
    norm = nn.utils.clip_grad_norm_(model.parameters(), 0.1)
    nn.utils.clip_grad_norm_(model.parameters(), 0.1)
    optimizer.step()
    seen = watch.end()
    assert float(seen["gradient_norm"]) == pytest.approx(float(norm), rel=1e-6)
    assert seen["clip/calls"] == 2 and seen["clip/cuts"] == 1


def test_clipping_in_two_calls_is_seen_once(
    watch: StepWatch, model: nn.Module, optimizer: torch.optim.Optimizer
) -> None:
    watch.begin()
    model(X).square().sum().backward()
    norm = nn.utils.get_total_norm([p.grad for p in model.parameters() if p.grad is not None])
    nn.utils.clip_grads_with_norm_(model.parameters(), 0.1, norm)
    optimizer.step()
    seen = watch.end()
    assert seen["clip/calls"] == 1 and seen["clip/max_norm"] == 0.1
    assert float(seen["rank/clip_norm"]) == pytest.approx(float(norm))
    assert float(seen["gradient_norm"]) == pytest.approx(float(norm), rel=1e-6)


def test_the_optimizers_settings_and_state_are_those_before_the_update(
    watch: StepWatch, model: nn.Module, optimizer: torch.optim.Optimizer
) -> None:
    first = step(watch, model, optimizer, X)
    assert first["setting/lr"].tolist() == [1e-2] * 4 and first["setting/betas.0"].tolist() == [0.8] * 4
    assert first["optimizer_step"] == 0 and not first["state/norm"].any()
    second = step(watch, model, optimizer, X)
    assert second["optimizer_step"] == 1 and second["state/norm"].all()


def test_evaluation_validation_and_random_numbers(
    watch: StepWatch, model: nn.Module, optimizer: torch.optim.Optimizer
) -> None:
    watch.begin()
    with torch.no_grad():
        model(X)  # validation between training steps
    model[1].eval()  # type: ignore[index]
    model(X).sum().backward()
    optimizer.step()
    seen = watch.end()
    assert seen["num_samples"] == 8
    assert seen["evaluating"].tolist() == [False, False, True, False]
    assert seen["rank/drew"].tolist() == [0]


def test_dropout_is_known_by_the_generator_that_it_moves() -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.5))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    watch = StepWatch(model, optimizer, sketch_size=64)
    assert step(watch, model, optimizer, X)["rank/drew"].tolist() == [1]
    watch.close()


def test_a_forward_pass_that_checkpointing_repeats_counts_once() -> None:
    from torch.utils.checkpoint import checkpoint

    class Checkpointed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = nn.Linear(4, 4)

        def forward(self, x: Tensor) -> Tensor:
            return checkpoint(self.inner, x, use_reentrant=False)  # type: ignore[no-any-return]

    torch.manual_seed(0)
    model = Checkpointed()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
    watch = StepWatch(model, optimizer, sketch_size=64)
    seen = step(watch, model, optimizer, X)
    index = watch.forward.seen.names.index("inner")
    plain = nn.Sequential(model.inner)
    watch.close()
    again = StepWatch(plain, torch.optim.SGD(plain.parameters(), lr=0.0), sketch_size=64)
    expected = step(again, plain, again.optimizer, X)["activation/sketch"][again.forward.seen.names.index("0")]
    again.close()
    assert torch.allclose(seen["activation/sketch"][index], expected)


def test_nothing_is_left_behind(model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    original = torch.nn.utils.clip_grad._clip_grads_with_norm_, torch.amp.GradScaler.step
    watch = StepWatch(model, optimizer, sketch_size=64)
    assert torch.nn.utils.clip_grad._clip_grads_with_norm_ is not original[0]
    watch.close()
    assert (torch.nn.utils.clip_grad._clip_grads_with_norm_, torch.amp.GradScaler.step) == original
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in model.modules())
    assert not any(parameter._backward_hooks for parameter in model.parameters())


def test_padding_on_the_right_makes_no_other_sample() -> None:
    from trainparity.parity.recording.identity import identifying
    from trainparity.parity.recording.sketch import row_digests

    def content_digests(inputs: tuple[Tensor, ...], keywords: dict[str, Tensor]) -> Tensor | None:
        given = identifying(inputs, keywords)
        return None if given is None else row_digests(given)

    tokens = torch.tensor([[5, 7, 9, 0, 0], [1, 2, 3, 4, 0]])
    mask = torch.tensor([[1, 1, 1, 0, 0], [1, 1, 1, 1, 0]])
    padded = content_digests((), {"attention_mask": mask, "input_ids": tokens + (1 - mask) * 50256})
    short = content_digests((), {"attention_mask": mask[:, :4], "input_ids": tokens[:, :4]})
    assert padded is not None and short is not None and torch.equal(padded, short)
    moved = content_digests((), {"attention_mask": mask, "input_ids": tokens.flip(1)})
    assert moved is not None and not torch.equal(padded, moved)


def test_samples_that_the_loop_knows_are_kept_apart_where_a_backward_pass_is_not_seen(
    watch: StepWatch, model: nn.Module, optimizer: torch.optim.Optimizer
) -> None:
    watch.begin([torch.tensor([4, 5, 6]), torch.tensor([7, 8, 9, 10, 11])])
    sum(model(part).square().sum() for part in (X[:3], X[3:])).backward()  # one pass for two micro-batches
    optimizer.step()
    seen = watch.end()
    assert seen["sample_ids"].tolist() == [5, 6, 7, 8, 9, 10, 11, 12]
    assert seen["rank/rows"].tolist() == [[3, 5]] and seen["rank/backwards"].tolist() == [1]


def test_weights_that_change_past_autograd_between_steps_are_seen(
    watch: StepWatch, model: nn.Module, optimizer: torch.optim.Optimizer
) -> None:
    first = step(watch, model, optimizer, X)
    next(model.parameters()).data.mul_(2)
    second = step(watch, model, optimizer, X)
    assert torch.allclose(second["start/sketch"][0], 2 * first["weight/sketch"][0])


class Halves(nn.Module):
    def forward(self, data: Tensor) -> tuple[Tensor, ...]:
        return data.unbind(1)


def test_an_output_without_a_gradient_is_passed_over() -> None:
    model = nn.Sequential(nn.Linear(4, 2), Halves())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    watch = StepWatch(model, optimizer, sketch_size=64)
    watch.begin()
    model(X)[0].sum().backward()
    optimizer.step()
    seen = watch.end()
    watch.close()
    named = dict(zip(watch.forward.seen.names, seen["activation_gradient/sketch"].norm(dim=1).tolist(), strict=True))
    assert named["(output)"] > 0 and named["(output).1"] == 0


@pytest.mark.parametrize("kind", ["sparse", "nested"])
def test_tensors_that_do_not_lie_in_memory_as_rows_are_passed_by(kind: str) -> None:
    """Sparse gradients count in full; of sparse inputs and nested outputs there are no sums, and nothing breaks."""
    embedding, layer = nn.EmbeddingBag(9, 4, sparse=True, mode="sum"), nn.Linear(4, 3)

    class Odd(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embedding, self.layer = embedding, layer

        def forward(self, given: Tensor) -> Tensor:
            if kind == "sparse":
                rows = given.coalesce().indices()[1].view(2, 2)
                return self.layer(self.embedding(rows))  # type: ignore[no-any-return]
            parts = torch.nested.nested_tensor(list(given.split(1)), layout=torch.jagged)
            return self.layer(parts).values()  # type: ignore[no-any-return]

    model = Odd()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    watch = StepWatch(model, optimizer, sketch_size=64)
    watch.begin(noise=Noise(1, tf32=False))
    given = torch.eye(9)[[0, 3, 3, 5]].view(2, 2, 9).sum(1).to_sparse() if kind == "sparse" else X
    model(given).sum().backward()
    optimizer.step()
    seen = watch.end()
    watch.close()
    gradient = embedding.weight.grad
    expected = 0.0 if gradient is None else float(gradient.to_dense().norm())
    assert float(seen["gradient/norm"][0]) == pytest.approx(expected) and (expected > 0) == (kind == "sparse")


def test_calls_of_one_module_in_a_pass_are_told_apart() -> None:
    class Twice(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.relu, self.layer = nn.ReLU(), nn.Linear(4, 4)

        def forward(self, given: Tensor) -> Tensor:
            return self.relu(self.layer(self.relu(given)))  # type: ignore[no-any-return]

    other = Twice()
    watch = StepWatch(other, torch.optim.SGD(other.parameters(), lr=0.1), sketch_size=64)
    watch.begin()
    other(X).sum().backward()
    watch.optimizer.step()
    watch.end()
    watch.close()
    assert watch.forward.seen.names == ["(input)", "relu", "layer", "relu (call 2)", "(output)"]


def test_copies_of_a_model_that_is_recorded_are_not_looked_at(
    watch: StepWatch, model: nn.Module, optimizer: torch.optim.Optimizer
) -> None:
    """A target network that is copied within the loop has the hooks of the model that is trained."""
    watch.begin()
    target = copy.deepcopy(model)
    wanted = target(X + 1).detach()
    (model(X) - wanted).square().sum().backward()
    optimizer.step()
    seen = watch.end()
    assert int(seen["num_samples"]) == len(X) and watch.forward.seen.outputs == ["(output)"]


def test_a_model_that_is_recorded_can_be_saved_whole(
    watch: StepWatch, model: nn.Module, optimizer: torch.optim.Optimizer
) -> None:
    """Scripts of old save the module itself; its pickle works where trainparity is not installed."""
    watch.begin()
    kept = io.BytesIO()
    torch.save(model, kept)
    assert b"trainparity." not in kept.getvalue().replace(b"trainparity.hook", b"")
    kept.seek(0)
    loaded = torch.load(kept, weights_only=False)
    assert torch.equal(loaded(X), model(X)) and int(watch.end()["num_samples"]) == len(X)


def test_a_vectorised_pass_is_passed_by(watch: StepWatch, model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    """Gradients of single samples, as differentially private training takes them."""

    def loss(weights: dict[str, Tensor], row: Tensor) -> Tensor:
        made: Tensor = torch.func.functional_call(model, weights, (row[None],))
        return made.square().sum()

    watch.begin(noise=Noise(1, tf32=False))
    weights = {name: parameter.detach() for name, parameter in model.named_parameters()}
    found = torch.vmap(torch.func.grad(loss), in_dims=(None, 0))(weights, X)
    for name, parameter in model.named_parameters():
        parameter.grad = found[name].mean(0)
    optimizer.step()
    assert float(watch.end()["gradient_norm"]) > 0


def test_ranks_tell_what_they_hold_again_only_where_that_changed(
    model: nn.Sequential, monkeypatch: pytest.MonkeyPatch
) -> None:
    optimizer = torch.optim.SGD(model[2].parameters(), lr=0.1)
    watch = StepWatch(model, optimizer, sketch_size=64)
    held: list[list[bool]] = []
    told: list[int] = []
    renew = Holders.renew

    def telling(holders: Holders) -> None:
        told.append(len(held))
        renew(holders)

    monkeypatch.setattr(Holders, "renew", telling)
    for number in range(4):
        if number == 2:
            optimizer.add_param_group({"params": model[0].parameters()})
        held.append(step(watch, model, optimizer, X)["held"].tolist())
    watch.close()
    assert held == [[False, False, True, True]] * 2 + [[True] * 4] * 2
    assert told == [0, 2]


def test_clipping_of_what_the_optimizer_holds_of_another_model_is_no_clipping_of_this_one(model: nn.Module) -> None:
    other = nn.Linear(3, 1)
    optimizer = torch.optim.SGD([*model.parameters(), *other.parameters()], lr=0.1)
    watch = StepWatch(model, optimizer, sketch_size=64)
    calls = []
    for clipped in (other, model):
        watch.begin()
        other(model(X)).sum().backward()
        nn.utils.clip_grad_norm_(clipped.parameters(), 0.1)
        optimizer.step()
        calls.append(int(watch.end()["clip/calls"]))
    watch.close()
    assert calls == [0, 1]
