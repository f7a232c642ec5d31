from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from tests.support.on_ranks import on_ranks
from trainparity.training import activation_budget
from trainparity.training.activation_budget import ActivationBudget
from trainparity.training.activation_plan import BlockCost, added_seconds, choose
from trainparity.training.block_measures import BlockMeasures

CPU = torch.device("cpu")
MIB = 1 << 20
ROWS, WIDTH = 8192, 32
"""A float32 tensor of them takes a MiB."""


def model(count: int = 5) -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(
        *(
            nn.Sequential(
                nn.Linear(WIDTH, WIDTH), nn.BatchNorm1d(WIDTH), nn.Tanh(), nn.Dropout(0.5), nn.Linear(WIDTH, WIDTH)
            )
            for _ in range(count)
        )
    )


def gradients_and_buffers(module: nn.Module, budget: ActivationBudget | None, step: int) -> list[Tensor]:
    torch.manual_seed(step)
    module.zero_grad()
    inputs = torch.randn(ROWS, WIDTH)
    if budget is None:
        loss = module(inputs).square().sum()
    else:
        with budget.forward_pass():
            loss = module(inputs).square().sum()
    loss.backward()
    return [p.grad.clone() for p in module.parameters() if p.grad is not None] + [b.clone() for b in module.buffers()]


def test_the_training_is_the_same_to_the_last_bit_within_the_budget() -> None:
    for mib in (0, 6, 1000):
        plain, limited = model(), model()
        budget = ActivationBudget(list(limited), mib * MIB, CPU)
        for step in range(6):
            wanted, found = gradients_and_buffers(plain, None, step), gradients_and_buffers(limited, budget, step)
            assert all(torch.equal(a, b) for a, b in zip(wanted, found, strict=True)), (mib, step)
        assert budget.decided
        assert budget.peak <= max(mib + 1, 2) * MIB, mib  # with the one that is being saved
        assert (budget.treatments == ["keep"] * 5) == (mib == 1000)


class Keyed(nn.Module):
    """Given a tensor by a keyword, which the model changes in place after it."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(WIDTH, WIDTH)

    def forward(self, x: Tensor, *, step: Tensor) -> Tensor:
        return torch.tanh(self.layer(x + step))


class Counts(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(Keyed() for _ in range(3))

    def forward(self, x: Tensor) -> Tensor:
        step = torch.zeros(1)
        for block in self.blocks:
            x = block(x, step=step)
            step += 1
        return x


class InPlace(nn.Module):
    """Blocks that change what they are given, and a residual that does so after one."""

    def __init__(self) -> None:
        super().__init__()
        self.enter = nn.Linear(WIDTH, WIDTH)
        self.blocks = nn.ModuleList(
            [nn.Sequential(nn.ReLU(inplace=True), nn.Linear(WIDTH, WIDTH)) for _ in range(2)]
            + [nn.Sequential(nn.Dropout(0.5), nn.Linear(WIDTH, WIDTH))]
        )

    def forward(self, x: Tensor) -> Tensor:
        x = self.blocks[1](self.blocks[0](self.enter(x)))
        x += self.blocks[2](x)
        return x


class GivenAView(nn.Module):
    """A stream of which blocks are given views, and to which what they return is added in place."""

    def __init__(self) -> None:
        super().__init__()
        self.enter = nn.Linear(WIDTH, WIDTH)
        self.blocks = nn.ModuleList(nn.Sequential(nn.ReLU(), nn.Linear(WIDTH, WIDTH)) for _ in range(4))

    def forward(self, x: Tensor) -> Tensor:
        x = self.enter(x).view(2, -1, WIDTH)
        for first, second in zip(self.blocks[::2], self.blocks[1::2], strict=True):
            x += second(first(x.view(-1, WIDTH))).view(2, -1, WIDTH)
        return x.view(-1, WIDTH)


@pytest.mark.parametrize("kind", [Counts, InPlace, GivenAView])
@pytest.mark.parametrize("mib", [0, 2, 5, 1000])
def test_blocks_whose_inputs_are_changed_in_place_are_not_computed_again(kind: type[nn.Module], mib: int) -> None:
    plain, limited = kind(), kind()
    limited.load_state_dict(plain.state_dict())
    budget = ActivationBudget(list(limited.blocks), mib * MIB, CPU)  # type: ignore[arg-type]
    for step in range(5):
        wanted, found = gradients_and_buffers(plain, None, step), gradients_and_buffers(limited, budget, step)
        assert all(torch.equal(a, b) for a, b in zip(wanted, found, strict=True)), step
    assert budget.peak <= max(mib + 1, 2) * MIB


def test_a_call_before_the_first_pass_is_one_of_no_pass() -> None:
    limited = model()
    budget = ActivationBudget(list(limited), 1000 * MIB, CPU)
    limited(torch.randn(4, WIDTH)).sum().backward()
    for step in range(2):
        gradients_and_buffers(limited, budget, step)
    assert budget.decided


def test_what_fits_is_left_alone() -> None:
    limited = model()
    budget = ActivationBudget(list(limited), 1000 * MIB, CPU)
    for step in range(2):
        gradients_and_buffers(limited, budget, step)
    assert budget.decided and budget.treatments == ["keep"] * 5


def test_inputs_of_what_is_computed_again_count(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(activation_budget, "bytes_per_s", lambda device: 1.0)  # no copy pays
    limited = model(12)
    budget = ActivationBudget(list(limited), 8 * MIB, CPU)
    for step in range(5):
        gradients_and_buffers(limited, budget, step)
    assert [cost.inputs for cost in budget._costs[1:]] == [MIB] * 11
    assert budget.peak <= 9 * MIB


def test_a_larger_batch_is_measured_anew() -> None:
    limited = model()
    budget = ActivationBudget(list(limited), 14 * MIB, CPU)
    for rows in [ROWS // 4] * 4 + [ROWS] * 5:
        with budget.forward_pass():
            loss = limited(torch.randn(rows, WIDTH)).square().sum()
        loss.backward()
        del loss
    assert budget.decided and sum(cost.saved for cost in budget._costs) > 14 * MIB
    assert budget.treatments != ["keep"] * 5 and budget.peak <= 15 * MIB


def test_an_error_in_a_pass_leaves_nothing() -> None:
    limited = model()
    budget = ActivationBudget(list(limited), 1000 * MIB, CPU)

    def refuse(*_: object) -> None:
        raise ValueError

    handle = limited[3].register_forward_pre_hook(refuse)
    for _ in range(2):
        with pytest.raises(ValueError), budget.forward_pass():
            limited(torch.randn(ROWS, WIDTH))
    handle.remove()
    assert budget._saved.on_device == 0
    gradients_and_buffers(limited, budget, 0)
    gradients_and_buffers(limited, budget, 1)
    assert budget.decided and budget._costs[0].saved < 10 * MIB


def _decided_on(rank: int) -> Tensor:
    """Decide on a rank whose blocks seem to take another time each."""
    limited = model(6)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(activation_budget, "bytes_per_s", lambda device: 1.0 + rank)
        patch.setattr(BlockMeasures, "seconds", lambda self: [(n if rank else 6 - n) * 1e-3 for n in range(6)])
        budget = ActivationBudget(list(limited), 10 * MIB, CPU)
        for step in range(4):
            gradients_and_buffers(limited, budget, step)
    assert budget.decided
    return torch.tensor([treatment == "recompute" for treatment in budget.treatments]).int()


def test_ranks_decide_alike(tmp_path: Path) -> None:
    """A block of one rank that waits for another's message, which that does not send again, would get a wrong one."""
    one, two = on_ranks(2, tmp_path, _decided_on)
    assert torch.equal(one, two) and 0 < one.sum() < 6


def test_what_it_decides_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    limited = model()
    budget = ActivationBudget(list(limited), 4 * MIB, CPU, name="limited")
    for step in range(6):
        gradients_and_buffers(limited, budget, step)
    assert "limited: 5 blocks save " in capsys.readouterr().err


def test_a_pass_without_gradients_saves_nothing() -> None:
    limited = model()
    budget = ActivationBudget(list(limited), 0, CPU)
    with torch.no_grad():
        limited(torch.randn(ROWS, WIDTH))
    assert budget.peak == 0


def test_parameters_keep_their_names() -> None:
    module = model()
    names = [name for name, _ in module.named_parameters()]
    ActivationBudget(list(module), 0, CPU)
    assert [name for name, _ in module.named_parameters()] == names


ALIKE = [BlockCost(saved=100, inputs=10, seconds=1.0)] * 10


def test_copies_that_the_computation_hides_are_preferred() -> None:
    chosen = choose(ALIKE, 400, bytes_per_s=200.0, beside=True)
    assert chosen == ["offload"] * 6 + ["keep"] * 4
    assert added_seconds(ALIKE, chosen, 200.0, beside=True) == 0


def test_slow_copies_give_way_to_computing_again() -> None:
    chosen = choose(ALIKE, 400, bytes_per_s=1.0, beside=True)
    assert "offload" not in chosen
    assert chosen == ["recompute"] * 7 + ["keep"] * 3  # the kept ones are free when backward reaches the others


def test_what_frees_most_in_a_second_is_computed_again_first() -> None:
    costs = [BlockCost(100, 10, 1.0), BlockCost(100, 10, 0.01), BlockCost(100, 10, 1.0)]
    assert choose(costs, 250, bytes_per_s=1.0, beside=True)[1] == "recompute"


def test_copies_take_part_where_they_hide_a_part() -> None:
    """6,000 bytes do not fit; the rest of the forward pass hides 2,700 of them."""
    costs = [BlockCost(saved=1000, inputs=10, seconds=1.0)] * 10
    chosen = choose(costs, 4000, bytes_per_s=300.0, beside=True)
    assert 0 < chosen.count("offload") < 6 and "recompute" in chosen


costs = st.lists(
    st.builds(
        lambda saved, share, seconds: BlockCost(saved, int(saved * share), seconds),
        st.integers(0, 1000),
        st.floats(0, 1),
        st.floats(0, 10),
    ),
    min_size=1,
    max_size=12,
)


@given(costs, st.integers(0, 5000), st.floats(1, 1e6), st.booleans())
def test_a_plan_fits_and_costs_no_more_than_moving_everything(
    blocks: list[BlockCost], budget: int, rate: float, beside: bool
) -> None:
    chosen = choose(blocks, budget, rate, beside=beside)
    stays = sum(
        {"keep": cost.saved, "offload": 0, "recompute": cost.inputs}[treatment]
        for cost, treatment in zip(blocks, chosen, strict=True)
    )
    assert stays <= budget
    everything = ["offload"] * len(blocks)
    added = [added_seconds(blocks, plan, rate, beside=beside) for plan in (chosen, everything)]
    assert added[0] <= added[1] + 1e-9
