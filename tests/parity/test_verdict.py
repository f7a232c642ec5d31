"""The checker must fail what is wrong and pass what is right: on real training, over seeds."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import trainparity
from tests.support.runs import ADAM, SGD, Reference, configuration, prepared, train
from tests.support.synthetic import SHAPES, judge, scaled, trace
from trainparity.attach.owners import Together
from trainparity.params import Optimizer
from trainparity.parity.noise.rounding import rounding
from trainparity.parity.other_parameters import other_parameters
from trainparity.parity.recording.conditions import REDUCTION
from trainparity.parity.recording.trace import TOGETHER, Trace
from trainparity.training.loop import Trainer
from trainparity.training.micro_batches import MicroBatch
from trainparity.training.sampler import Sampler

SEEDS = range(2)  # `make controls` tries fifty


class UndividedLoss(Trainer):
    """Accumulates without dividing the loss by the number of micro-batches."""

    def _global_count(self, step: int, micro_batches: list[MicroBatch]) -> int:
        return super()._global_count(step, micro_batches) // self.configuration.accumulation_steps


class SkippedSample(Trainer):
    """Leaves one sample of one step out, and counts right."""

    def batches(self, *arguments: Any) -> Any:
        for step, micro_batches in enumerate(super().batches(*arguments)):
            if step == 3:
                first = micro_batches[0]
                fewer = {name: tensor[1:] for name, tensor in first.batch.items()}
                micro_batches = [MicroBatch(fewer, True), *micro_batches[1:]]
            yield micro_batches


class OtherOrder(Trainer):
    """Visits the samples of each global batch backwards: the same training."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.sampler = Backwards(**vars(self.sampler))


class Backwards(Sampler):
    def global_batch(self, step: int) -> torch.Tensor:
        return super().global_batch(step).flip(0)


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return prepared(tmp_path_factory.mktemp("digits"))


@pytest.fixture(params=[pytest.param(SGD, id="sgd"), pytest.param(ADAM, id="adam", marks=pytest.mark.study)])
def optimizer(request: pytest.FixtureRequest) -> Optimizer:
    chosen: Optimizer = request.param
    return chosen


def test_right_configurations_are_never_different_over_seeds(
    tmp_path: Path, dataset: Path, optimizer: Optimizer
) -> None:
    right = {
        "accumulation-2": (configuration(accumulation_steps=2), Trainer),
        "accumulation-4": (configuration(accumulation_steps=4), Trainer),
        "replicas": (configuration("data_parallel", world_size=2), Trainer),
        "other-order": (configuration(), OtherOrder),
    }
    alarms, largest = [], 0.0
    for seed in SEEDS:
        reference = Reference(tmp_path / str(seed), dataset, seed=seed, optimizer=optimizer)
        assert reference.judge(train(reference.candidate("itself", configuration()))).verdict == "bitwise"
        for name, (settings, kind) in right.items():
            result = reference.judge(train(reference.candidate(name, settings), kind=kind))
            largest = max(largest, result.distance_over_floor or 0.0)
            if result.verdict not in ("bitwise", "equivalent"):
                alarms.append((seed, name, result.reason))
    assert alarms == []
    # Far from the margin of 16: right runs are noise, and noise is what the twins measured.
    assert largest < 8


def test_wrong_configurations_are_different_over_seeds(tmp_path: Path, dataset: Path, optimizer: Optimizer) -> None:
    twice = optimizer.model_copy(update={"lr": 2 * optimizer.lr})
    two = configuration(accumulation_steps=2)
    for seed in SEEDS:
        reference = Reference(tmp_path / str(seed), dataset, seed=seed, optimizer=optimizer)
        wrong = {
            "undivided": train(reference.candidate("undivided", two), kind=UndividedLoss),
            "skipped": train(reference.candidate("skipped", two), kind=SkippedSample),
            "lr": train(reference.candidate("lr", configuration(), optimizer=twice)),
        }
        results = {name: reference.judge(run) for name, run in wrong.items()}
        assert {name: r.verdict for name, r in results.items()} == dict.fromkeys(wrong, "different")
        assert {name: r.step for name, r in results.items()} == {"undivided": 0, "skipped": 3, "lr": 0}
        assert min(r.distance_over_floor or 0 for r in results.values()) > 1000
        assert (results["lr"].tensor or "").startswith("update")
        assert (results["undivided"].tensor or "").startswith("gradient")


def test_a_gradient_scale_that_adam_hides_is_seen(tmp_path: Path, dataset: Path) -> None:
    reference = Reference(tmp_path, dataset, optimizer=ADAM)
    run = train(reference.candidate("undivided", configuration(accumulation_steps=4)), kind=UndividedLoss)
    worst = {w.kind: w for w in reference.judge(run).worst}
    assert worst["gradient"].distance > 2.99  # thrice as much is added at first, and more where the weights part
    assert worst["weight"].distance < worst["gradient"].distance / 100


@pytest.mark.slow
def test_windows_keep_long_correct_runs_equivalent_where_rounding_alone_would_part_them(
    tmp_path: Path, dataset: Path
) -> None:
    steps, hot = 120, Optimizer(name="sgd", lr=1.0, momentum=0.9)
    reference = Reference(tmp_path, dataset, steps=steps, window=20, optimizer=hot)
    two = configuration(accumulation_steps=2)
    windowed = reference.judge(train(reference.candidate("windowed", two)))
    assert windowed.verdict == "equivalent"
    unbroken = train(reference.candidate("unbroken", two, window=steps))
    assert reference.run.trace and unbroken.trace
    apart = unbroken.trace.arrays["weight/sketch"][-1] - reference.run.trace.arrays["weight/sketch"][-1]
    worst = max(w.distance for w in windowed.worst if w.kind == "weight")
    assert apart.norm() / reference.run.trace.arrays["weight/norm"][-1].norm() > 10 * worst


def test_runs_that_cannot_be_compared_tensor_by_tensor_say_why(tmp_path: Path, dataset: Path) -> None:
    reference = Reference(tmp_path, dataset)
    shorter = reference.judge(train(reference.candidate("shorter", configuration(), steps=10)))
    assert (shorter.verdict, shorter.reason) == ("cannot judge", "steps: 20 traced to step 19 and 10 traced to step 9")
    half = reference.judge(train(reference.candidate("half", configuration(precision="bf16"))))
    assert half.verdict == "cannot judge" and "in fp32 and half in bf16" in (half.reason or "")


def test_reduced_precision_is_judged_by_twins_of_the_same_precision(tmp_path: Path, dataset: Path) -> None:
    half = configuration(precision="bf16")
    reference = Reference(tmp_path, dataset, settings=half)
    assert reference.floor["weight"].max() > 1e-4
    right = train(reference.candidate("right", configuration(precision="bf16", accumulation_steps=2)))
    assert reference.judge(right).verdict == "equivalent"
    wrong = train(
        reference.candidate("wrong", configuration(precision="bf16", accumulation_steps=2)),
        kind=UndividedLoss,
    )
    assert reference.judge(wrong).verdict == "different"


def test_steps_that_fp16_overflow_skips_in_both_runs_are_no_difference(tmp_path: Path, dataset: Path) -> None:
    half = configuration(precision="fp16")
    small = SGD.model_copy(update={"lr": SGD.lr * 1e-4})
    # Eleven steps: after ten the scale has come down, and stays so near the limit that any run may overflow again.
    options = {"loss_factor": 1e4}
    reference = Reference(tmp_path, dataset, settings=half, optimizer=small, options=options, steps=11, window=11)
    assert reference.run.trace
    overflowed = ~reference.run.trace.arrays["gradient_norm"].isfinite()
    assert overflowed[0] and not overflowed[-1]
    two = configuration(precision="fp16", accumulation_steps=2)
    assert reference.judge(train(reference.candidate("right", two))).verdict == "equivalent"
    wrong = reference.judge(train(reference.candidate("wrong", two), kind=UndividedLoss))
    assert wrong.verdict == "different"


def test_a_reference_that_diverged_cannot_prove_anything(tmp_path: Path, dataset: Path) -> None:
    hot = Optimizer(name="sgd", lr=1e38)
    reference = Reference(tmp_path, dataset, optimizer=hot)
    result = reference.judge(train(reference.candidate("itself", configuration())))
    assert result.verdict == "cannot judge"
    assert "reference diverged: its weights are not finite after step" in (result.reason or "")


def test_an_equivalent_says_what_it_could_have_seen() -> None:
    """A little more than the resolution is different, a little less is not; of a single tensor as of the whole."""
    right = judge({}, {"parts": 2})
    seen = {one.kind: one for one in right.resolutions}
    assert list(seen) == ["gradient", "update", "weight", "buffer"]
    gradient = seen["gradient"]
    assert gradient.whole == right.resolution and gradient.weakest >= gradient.whole * 0.1
    more, less = 1 + 1.5 * gradient.weakest, 1 + 0.5 * gradient.weakest
    assert judge({}, {"gradients": scaled(more, gradient.tensor)}).verdict == "different"
    assert judge({}, {"gradients": scaled(less, gradient.tensor)}).verdict == "equivalent"
    assert judge({}, {"gradients": scaled(1 + 1.5 * gradient.whole)}).verdict == "different"


def test_a_running_mean_rounds_as_the_terms_that_cancel_in_it() -> None:
    buffers = {"n.running_mean": [4], "n.running_var": [4], "n.num_batches_tracked": []}
    lengths = torch.tensor([[1e-3, 2.0, 1.0]], dtype=torch.float64)
    digests = torch.zeros(1, 3, dtype=torch.int64)
    found = trace(steps=1, layout={"buffers": buffers}, buffer__norm=lengths, buffer__digest=digests)
    times = (rounding(found, "buffer") / found.layout.unit_roundoff)[0].tolist()
    assert times[0] == pytest.approx((2 * 2.0) ** 0.5 / 1e-3, rel=1e-3)  # |std| <= (sqrt(4) * |variance|) ** 0.5
    assert times[1] == 1.0 and times[2] < 1e-8 and 1 <= times[3] < 2  # a count is exact


def test_a_gradient_that_has_become_short_rounds_as_the_terms_of_its_sum() -> None:
    """Near a minimum, as LBFGS reaches it, they cancel."""
    short = trace(gradients=scaled(1e-6, since=2))
    rounded = rounding(short, "gradient")
    assert torch.all(rounded[:2] < 10 * rounded[0, 0]) and torch.all(rounded[2:] > 1e4 * rounded[0, 0])


def test_an_optimizer_that_holds_one_of_two_models_is_told_from_other_models() -> None:
    def of(prefix: str, kind: str, gradient: float = 1.0, **more: list[int]) -> Trace:
        shapes = {f"{prefix}{name}": shape for name, shape in SHAPES.items()} | more
        plain = trace()
        norms = [plain.arrays["gradient/norm"], torch.full((len(plain.layout.steps), len(more)), gradient)]
        layout = plain.layout.model_copy(update={"parameters": shapes, "modules": {"(model)": kind}})
        return Trace(layout, plain.arrays | {"gradient/norm": torch.cat(norms, 1)})

    both = of("Net_0.", TOGETHER, **{"Net_1.weight": [9]})
    found = other_parameters(("a", "b"), 16.0, both, of("", "Net"))
    assert found is not None and found.cause == "parameters-not-updated" and "Net_1" in str(found.reason)
    assert other_parameters(("a", "b"), 16.0, both, of("", "Net", weight=[3])) is None
    teacher = of("Net_0.", TOGETHER, 0.0, **{"Net_1.weight": [9]})
    assert other_parameters(("a", "b"), 16.0, teacher, of("", "Net")) is None
    assert Together.__name__ == TOGETHER


def test_an_optimizer_that_no_gradient_reaches_holds_other_tensors_than_are_trained() -> None:
    """As one that is made before `fully_shard`, which puts new parameters in the place of the old ones."""
    layout = {"parameters": {f"tensor_{place}": shape for place, shape in enumerate(SHAPES.values())}}
    stale = trace(layout=layout, rank__missing=torch.ones(4, 1, len(SHAPES), dtype=torch.bool))
    for runs in ((trace(), stale), (stale, trace())):
        found = other_parameters(("a", "b"), 16.0, *runs)
        assert found is not None and found.cause == "parameters-not-updated"
        assert f"no gradient reaches what the optimizer of {'ab'[runs.index(stale)]} holds" in str(found.explanation)
    assert other_parameters(("a", "b"), 16.0, stale, stale) is None
    assert other_parameters(("a", "b"), 16.0, trace(), trace(layout=layout)) is None


def test_a_parameter_that_is_tied_in_one_run_only_is_a_difference_though_a_verdict_of_one_is_false(
    tmp_path: Path,
) -> None:
    for name, shared in (("a", True), ("b", False)):
        model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))
        model[1].weight = model[0].weight if shared else nn.Parameter(model[0].weight.detach().clone())
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        with trainparity.record(model, optimizer, tmp_path / name):
            model(torch.ones(2, 4)).sum().backward()
            optimizer.step()
    found = trainparity.compare(tmp_path / "a", tmp_path / "b")
    assert (found.verdict, found.cause) == ("different", "weights-not-loaded")


def test_another_format_of_the_reduction_is_told_which_is_the_gradients_own_where_none_is_set() -> None:
    none, fp32, bf16 = ({"layout": {"environment": found}} for found in ({}, {REDUCTION: "fp32"}, {REDUCTION: "bf16"}))
    assert judge(fp32, bf16).environment == ["format of reduction: fp32 in left, bf16 in right"]
    assert judge(none, bf16).environment == ["format of reduction: fp32 in left, bf16 in right"]
    assert judge(none, fp32).environment == judge(none, none).environment == []
