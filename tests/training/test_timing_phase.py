import time
from pathlib import Path

import pytest
import torch

from tests.support.runs import configuration, prepared, spec, trainer_of
from trainparity.params import Loader, Timing
from trainparity.placement import Placement
from trainparity.training import timing_phase
from trainparity.training.loop import Trainer
from trainparity.training.spec import RunSpec, TimedBeside

HERE = Placement(device="cpu", backend=None, num_threads=2, emulated=None)


def operations(folder: Path, norm: str) -> float | None:
    settings = spec(folder, prepared(folder), "run", workload="resnet", options={"width": 8, "norm": norm})
    return timing_phase.measure(
        settings, Timing(warmup_steps=1, steps=2), trainer_of(settings), lambda: None
    ).flops_per_step


def test_operations_are_counted_where_batchnorm_sees_one_value_a_sample(tmp_path: Path) -> None:
    """The last stage's feature maps of 8x8 images are 1x1; norms themselves count nothing."""
    found = operations(tmp_path, "batch")
    assert found and found == operations(tmp_path, "group")


def test_a_steps_time_is_divided_into_its_parts_outside_of_the_timed_steps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = torch.Tensor.backward
    settings = spec(tmp_path, prepared(tmp_path), "run", settings=configuration(accumulation_steps=2))
    trainer = trainer_of(settings)
    during: list[bool] = []
    step = Trainer.step
    monkeypatch.setattr(
        Trainer, "step", lambda *args: (during.append(torch.Tensor.backward is not plain), step(*args))[1]
    )
    slow = trainer.optimizer.register_step_pre_hook(lambda *_: time.sleep(0.05))
    found = timing_phase.measure(settings, Timing(warmup_steps=1, steps=3), trainer, lambda: None)
    slow.remove()
    assert during == [False] * 6 + [True] * 5 and torch.Tensor.backward is plain
    parts = found.parts
    assert parts and parts.reduction_ms is None and len(found.step_ms) == 3
    assert parts.optimizer_ms >= 50 and parts.data_ms >= 0 and parts.forward_ms > 0 and parts.backward_ms > 0


@pytest.fixture
def accumulating(tmp_path: Path) -> RunSpec:
    """Return a run that is timed in turns with its reference, which has two threads where this has one."""
    run = spec(tmp_path, prepared(tmp_path), "run", settings=configuration(accumulation_steps=2))
    return run.model_copy(update={"beside": TimedBeside(configuration=configuration(), placement=HERE)})


def test_a_run_and_its_reference_take_turns(accumulating: RunSpec, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[tuple[int, int]] = []
    step = Trainer.step

    def noted(self: Trainer, number: int, micro_batches: list) -> torch.Tensor:
        made.append((self.configuration.accumulation_steps, torch.get_num_threads()))
        return step(self, number, micro_batches)

    monkeypatch.setattr(Trainer, "step", noted)
    timing = timing_phase.measure(accumulating, Timing(warmup_steps=1, steps=4), trainer_of(accumulating), lambda: None)
    own, reference = (2, 1), (1, 2)
    alone = [own, own, own, reference]  # warm-up, two steps for memory; the reference's warm-up
    in_parts = [own] * 5
    assert made == [*alone, reference, own, own, reference, reference, own, own, reference, *in_parts]
    assert len(timing.reference_ms) == len(timing.step_ms) == 4 and min(timing.reference_ms) > 0
    assert timing.unpaired is None
    assert timing.machine and 0 <= timing.machine.others <= 1


def test_a_run_with_loader_workers_takes_no_turns(accumulating: RunSpec) -> None:
    """They would load while the reference trains, and so look faster than they are."""
    loaded = accumulating.configuration.model_copy(update={"loader": Loader(workers=1)})
    waiting = accumulating.model_copy(update={"configuration": loaded})
    timing = timing_phase.measure(waiting, Timing(warmup_steps=1, steps=2), trainer_of(waiting), lambda: None)
    assert timing.reference_ms == [] and "load batches ahead" in str(timing.unpaired)


def test_a_reference_that_does_not_fit_beside_the_run_is_told(
    accumulating: RunSpec, monkeypatch: pytest.MonkeyPatch
) -> None:
    trainer = trainer_of(accumulating)

    def full(*_: object) -> None:
        raise torch.OutOfMemoryError("CUDA out of memory")

    monkeypatch.setattr(Trainer, "wrap", full)
    timing = timing_phase.measure(accumulating, Timing(warmup_steps=1, steps=2), trainer, lambda: None)
    assert timing.reference_ms == [] and "does not fit on cpu" in str(timing.unpaired)
    assert len(timing.step_ms) == 2


def test_a_reference_is_timed_alone(tmp_path: Path) -> None:
    run = spec(tmp_path, prepared(tmp_path), "reference")
    timing = timing_phase.measure(run, Timing(warmup_steps=1, steps=2), trainer_of(run), lambda: None)
    assert timing.reference_ms == [] and timing.unpaired is None
