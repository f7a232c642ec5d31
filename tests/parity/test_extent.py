"""A verdict says how many of the steps that were made it compares, and what judges those after the last one of them."""

from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import trainparity
from tests.support.against_twins import LABELS, classifier, compared
from trainparity.parity.compare import compare_folders
from trainparity.parity.recording.trace import Trace
from trainparity.records.later_steps import LaterSteps

DOCUMENT = Path(__file__).parents[2] / "docs/verdict.md"

BY_THE_END, BY_NOTHING = "weights at the end", "nothing"


def train(
    folder: Path, twin: int, *, steps: int = 24, parts: int = 1, smoothed_from: int = 24, coarse: bool = False,
    grows_at: int | None = None, fails: bool = False, **options: Any,
) -> None:  # fmt: skip
    """Train on 16 samples [4] a step, by default with the first 8 steps traced; labels may be smoothed from one on."""
    torch.manual_seed(0)
    model = classifier()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    draws = torch.Generator().manual_seed(1)
    with trainparity.record(model, optimizer, folder, twin=twin, **options):
        for step in range(steps):
            if step == grows_at:
                assert isinstance(model, nn.Sequential)
                model.append(nn.Linear(10, 10))
            optimizer.zero_grad()
            smoothing = 0.1 if step >= smoothed_from else 0.0
            batch = torch.randn(16, 4, generator=draws)
            for images, labels in zip(batch.chunk(parts), LABELS.chunk(parts), strict=True):
                with torch.autocast("cpu", torch.bfloat16, enabled=coarse):
                    outputs = model(images)
                loss = nn.functional.cross_entropy(outputs.float(), labels, label_smoothing=smoothing)
                (loss / parts).backward()
            optimizer.step()
        if fails:
            raise InterruptedError


def both(folder: Path, **facts: Any) -> trainparity.Verdict:
    """Compare two runs of one loop without twins, the other of which cuts its batch in two."""
    for name, parts in (("a", 1), ("b", 2)):
        train(folder / name, 0, parts=parts, **facts)
    return compare_folders(folder / "a", folder / "b")


def test_a_late_fault_that_the_floor_of_the_end_hides_in_bf16_lies_in_steps_that_the_verdict_names(
    tmp_path: Path,
) -> None:
    reference, late = partial(train, coarse=True), partial(train, coarse=True, smoothed_from=20)
    found = compared(reference, late, tmp_path / "few")
    assert (found.verdict, found.steps_compared, found.steps_made) == ("equivalent", 8, 24)
    assert found.later_steps == [LaterSteps(first=8, last=23, judged_by=BY_THE_END)]
    assert found.extent == "8 of the 24 steps that were made"
    said, advice = found.not_compared
    assert said.startswith("compared by the weights at the end alone: steps 8 to 23: a fault within the noise floor")
    assert "record every step (`interval=1`" in advice
    shown = DOCUMENT.read_text(encoding="utf-8")
    assert f"over {found.extent}\n  {said}\n  {advice}\n" in shown
    found = compared(partial(reference, interval=1), partial(late, interval=1), tmp_path / "all")  # what is advised
    assert (found.verdict, found.cause, found.step) == ("different", "loss-or-targets", 20)
    assert found.extent == "all 24 steps that were made" and not found.later_steps


def test_where_all_steps_are_compared_nothing_more_is_said(tmp_path: Path) -> None:
    found = both(tmp_path, steps=8)
    assert (found.verdict, found.extent, found.not_compared) == ("equivalent", "all 8 steps that were made", [])


def test_steps_between_compared_ones_are_counted_and_no_later_ones(tmp_path: Path) -> None:
    found = both(tmp_path, steps=21, interval=10, first=2)
    assert (found.verdict, found.extent) == ("equivalent", "4 of the 21 steps that were made")  # 0, 1, 10, 20
    assert not found.later_steps


def test_equal_bits_at_the_end_hide_nothing_within_a_floor(tmp_path: Path) -> None:
    for name in ("a", "b"):
        train(tmp_path / name, 0)
    found = compare_folders(tmp_path / "a", tmp_path / "b")
    assert found.verdict == "bitwise" and found.later_steps == [LaterSteps(first=8, last=23, judged_by=BY_THE_END)]
    assert "floor" not in found.not_compared[0]


def test_of_a_difference_the_count_is_said_and_no_remedy(tmp_path: Path) -> None:
    train(tmp_path / "a", 0)
    train(tmp_path / "b", 0, smoothed_from=0)
    found = compare_folders(tmp_path / "a", tmp_path / "b")
    assert (found.verdict, found.extent) == ("different", "8 of the 24 steps that were made")
    assert not found.not_compared


def test_the_end_judges_its_own_window_alone(tmp_path: Path) -> None:
    """A window begins with the reference's weights: what the other run made of them before is gone."""
    train(tmp_path / "a", 0, every=10, interval=50)
    train(tmp_path / "b", 0, every=10, interval=50, follow=tmp_path / "a", smoothed_from=30)
    found = compare_folders(tmp_path / "a", tmp_path / "b")
    assert found.verdict == "bitwise"
    assert [(later.first, later.last, later.judged_by) for later in found.later_steps] == [
        (8, 19, BY_NOTHING),
        (20, 23, BY_THE_END),
    ]
    assert found.not_compared[0].startswith("NOT compared: steps 8 to 19: each window of 10 steps begins with")


def test_the_first_and_last_steps_of_windows_judge_all_but_the_last_window(tmp_path: Path) -> None:
    train(tmp_path / "a", 0, every=10)
    train(tmp_path / "b", 0, every=10, follow=tmp_path / "a", smoothed_from=30)
    found = compare_folders(tmp_path / "a", tmp_path / "b")
    assert (found.verdict, found.extent) == ("bitwise", "12 of the 24 steps that were made")
    assert [(later.first, later.last, later.judged_by) for later in found.later_steps] == [(21, 23, BY_THE_END)]


def test_where_recording_ended_before_the_training_nobody_knows_how_many_steps_that_made(tmp_path: Path) -> None:
    with pytest.warns(UserWarning, match="recorded no further"):
        found = both(tmp_path, steps=9, grows_at=5)
    assert (found.verdict, found.steps_made, found.extent) == ("equivalent", None, "5 traced steps")
    [said] = found.not_compared
    assert said.startswith("NOT compared: the steps from 5 on: from step 5 on the model has other parameters")


def test_a_training_that_ended_with_an_error_made_the_steps_that_were_recorded(tmp_path: Path) -> None:
    for name in ("a", "b"):
        with pytest.raises(InterruptedError):
            train(tmp_path / name, 0, steps=8, fails=True)
    found = compare_folders(tmp_path / "a", tmp_path / "b")
    assert (found.verdict, found.extent, found.later_steps) == ("bitwise", "all 8 steps that were made", [])


def test_of_recordings_that_do_not_hold_how_many_steps_were_made_it_is_not_said(tmp_path: Path) -> None:
    """Earlier versions have not written it."""
    for name in ("a", "b"):
        train(tmp_path / name, 0)
        trace = Trace.load(tmp_path / name)
        Trace(trace.layout.model_copy(update={"made": 0}), trace.arrays).save(tmp_path / name)
    found = compare_folders(tmp_path / "a", tmp_path / "b")
    assert (found.verdict, found.steps_made, found.extent) == ("bitwise", None, "8 traced steps")
    assert not found.later_steps


def train_two(folder: Path, every: int) -> None:
    """Train two models for 20 steps, the second of which, `G`, makes one in so many."""
    torch.manual_seed(0)
    models = nn.Linear(4, 2), nn.Linear(4, 2)
    optimizers = [torch.optim.SGD(model.parameters(), lr=0.01) for model in models]
    with (
        trainparity.record(models[0], optimizers[0], folder),
        trainparity.record(models[1], optimizers[1], folder, name="G"),
    ):
        for step in range(20):
            for model, optimizer in list(zip(models, optimizers, strict=True))[: 2 if step % every == 0 else 1]:
                optimizer.zero_grad()
                model(torch.randn(8, 4)).square().mean().backward()
                optimizer.step()


@pytest.mark.parametrize(("every", "of_the_second"), [(2, [("G", 8, 9)]), (4, [])])
def test_of_several_models_each_ones_later_steps_are_named(
    every: int, of_the_second: list[tuple[str, int, int]], tmp_path: Path
) -> None:
    """The number is that of the model of which the smallest part is compared, not of one that makes few steps."""
    for name in ("a", "b"):
        train_two(tmp_path / name, every)
    found = compare_folders(tmp_path / "a", tmp_path / "b")
    assert (found.verdict, found.extent) == ("bitwise", "8 of the 20 steps that were made")
    assert [(later.model, later.first, later.last) for later in found.later_steps] == [
        ("(the first)", 8, 19),
        *of_the_second,
    ]
    assert found.not_compared[0].startswith(
        "compared by the weights at the end alone: steps 8 to 19 of the model (the first)"
    )
