"""What is not known never reads as agreement: altered evidence gives `different` or `cannot judge`, never a pass."""

import os
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.synthetic import SHAPES, all_but, scaled, trace, twins
from trainparity.parity.compare import compare_folders
from trainparity.parity.noise.analytic_floor import AnalyticFloor
from trainparity.parity.noise.floor import NoiseFloor
from trainparity.parity.recording.trace import Trace
from trainparity.parity.verdict import judge_traces
from trainparity.records.base import RecordError
from trainparity.records.verdict import Verdict

FAULTS: dict[str, dict[str, Any]] = {
    "doubled": {"weights": (2.0,)},
    "late": {"gradients": scaled(2, since=2)},
    "one tensor": {"gradients": scaled(1.5, "a.bias")},
    "learning rate": {"lr": lambda step: 0.2},
    "ranks": {"ranks": 2, "rank__weight": torch.tensor([[5, 6]] * 4)},
    "buffer": {"buffer": 0.1},
    "overflow": {"gradients": scaled(float("inf"), since=3)},
}


OPTIMIZERS = ("SGD", "Adam")
"""Adam's floor of updates is widened by what noise makes of its nearly constant steps."""


@cache
def traces(fault: str, optimizer: str = "SGD") -> tuple[Trace, ...]:
    facts: dict[str, Any] = {"layout": {"optimizer": optimizer}}
    return (trace(**facts), trace(**FAULTS[fault], **facts), *twins(**facts))


def judged(*found: Trace) -> Verdict:
    left, right, *floor = found
    return judge_traces(left, right, NoiseFloor(left, floor), 16.0)


def changed(original: Trace, **arrays: Any) -> Trace:
    return Trace(original.layout, original.arrays | {name.replace("__", "/"): value for name, value in arrays.items()})


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_a_twin_that_is_not_finite_excuses_nothing(value: float) -> None:
    """Once it turned a doubled loss, 1.7e7 times the floor away, into `equivalent`."""
    left, right, *found = traces("doubled")
    found[1] = trace(twin=2, gradients=scaled(value, "a.bias"))
    verdict = judged(left, right, *found)
    assert verdict.exit_code in (1, 2)
    alike = judged(left, trace(parts=2), *found)
    assert (alike.verdict, alike.exit_code) == ("cannot judge", 2)
    assert alike.reason == "twin 2 is not finite, or lost, in gradient a.bias at step 0"


def test_a_twin_that_becomes_useless_later_does_not_hide_what_comes_before_it() -> None:
    left, right, *found = traces("doubled")
    found[0] = trace(twin=1, gradients=scaled(float("nan"), since=2))
    assert judged(left, right, *found).verdict == "different"


def test_a_twin_of_another_run_is_none() -> None:
    left, _, *found = traces("learning rate")
    found[2] = trace(twin=3, start=0.5)
    verdict = judged(left, trace(parts=2), *found)
    assert verdict.verdict == "cannot judge"
    assert str(verdict.reason).startswith(
        "twin 3 starts from other weights: it is no twin of this run. Give the script a seed"
    )


def test_a_twin_with_other_frozen_weights_is_none_though_no_optimizer_holds_them() -> None:
    """As of a quantised model whose adapters alone are trained."""
    frozen = scaled(0, "a.weight")
    left, right = trace(gradients=frozen), trace(parts=2, gradients=frozen)
    found = [trace(twin=number, gradients=frozen) for number in (1, 2)]
    starts = found[1].arrays["start/sketch"].clone()
    starts[:, 0] *= 0.9
    left, *found = (changed(one, held=all_but("a.weight")) for one in (left, *found))
    assert judged(left, right, *found).verdict == "equivalent"
    verdict = judged(left, right, found[0], changed(found[1], start__sketch=starts))
    assert verdict.verdict == "cannot judge" and "twin 2 starts from other weights" in str(verdict.reason)


def test_of_weights_that_another_optimizer_moves_a_twin_may_start_from_others() -> None:
    left, right, *found = [changed(one, held=all_but("a.weight")) for one in (trace(), trace(parts=2), *twins())]
    starts = found[1].arrays["start/sketch"].clone()
    starts[:, 0] *= 1.001
    assert judged(left, right, found[0], changed(found[1], start__sketch=starts)).verdict == "equivalent"


@pytest.mark.parametrize(
    ("twin", "layout", "said"),
    [
        (trace(twin=3, ranks=2), {}, "world size 2, not 1"),
        (trace(twin=3), {"precision": "bf16"}, "precision bf16, not fp32"),
        (trace(twin=3), {"optimizer": "Adam"}, "optimizer Adam, not SGD"),
    ],
)
def test_a_twin_that_ran_otherwise_excuses_nothing(twin: Trace, layout: dict[str, Any], said: str) -> None:
    left, _, *found = traces("learning rate")
    found[2] = one_with(twin, **layout)
    verdict = judged(left, trace(parts=2), *found)
    assert verdict.verdict == "cannot judge" and str(verdict.reason).startswith(f"twin 3 ran with {said}")


def one_with(original: Trace, **layout: Any) -> Trace:
    return Trace(original.layout.model_copy(update=layout), original.arrays)


def test_a_floor_that_opens_at_once_is_not_believed() -> None:
    left, _, *found = traces("late")
    opened = scaled(2, "a.weight", since=2)
    found[0] = trace(twin=1, gradients=opened)
    verdict = judged(left, trace(twin=9, gradients=opened), *found)
    assert verdict.verdict == "cannot judge" and "between steps 1 and 2, which rounding does only where" in str(
        verdict.reason
    )


def test_gradients_that_overflow_in_both_runs_count_as_equal_only_where_no_update_was_made() -> None:
    overflow = trace(gradients=scaled(float("inf"), since=3))
    assert judged(overflow, overflow, *twins()).verdict == "cannot judge"
    left, right, *found = traces("doubled")
    infinite = {"gradient__norm": torch.full((4, len(SHAPES)), torch.inf)}
    assert judged(*(changed(t, **infinite) for t in (left, right)), *found).verdict in ("different", "cannot judge")


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"layout": {"steps": []}}, "steps: there are none"),
        ({"layout": {"parameters": {}}}, "parameters: there are none"),
        ({"layout": {"world_size": 2}}, "of shape"),
        ({"rank__weight": torch.zeros(4, 0, dtype=torch.int64)}, "rank/weight: of shape"),
        ({"layout": {"groups": [5]}}, "groups: do not name a rank"),
        ({"layout": {"groups": [0, 0]}}, "groups: do not name a rank"),
        ({"rank__weight": torch.ones(4, 1, dtype=torch.bool)}, "rank/weight: of type torch.bool"),
        ({"gradient__norm": torch.ones(4, 3, dtype=torch.int32)}, "gradient/norm: of type torch.int32"),
        ({"gradient__sketch": torch.zeros(4, 3, 0)}, "gradient/sketch: of shape"),
        ({"gradient__norm": torch.full((4, 3), 1e9, dtype=torch.float64)}, "gradient/norm: does not fit its sketch"),
    ],
    ids=str,
)
def test_a_trace_without_evidence_is_named(change: dict[str, Any], reason: str) -> None:
    altered = trace(**change)
    for left, right in ((altered, trace()), (trace(), altered), (altered, altered)):
        verdict = judge_traces(left, right, AnalyticFloor(trace()), 16.0)
        assert (verdict.verdict, verdict.exit_code) == ("cannot judge", 2) and reason in str(verdict.reason)


ALTERATIONS = {
    "nan": lambda a: torch.full_like(a, torch.nan) if a.is_floating_point() else torch.zeros_like(a),
    "infinite": lambda a: torch.full_like(a, torch.inf) if a.is_floating_point() else torch.zeros_like(a),
    "zero": torch.zeros_like,
    "empty": lambda a: a[:0],
    "narrow": lambda a: a[..., :0] if a.ndim else a,
    "first only": lambda a: a[:1],
    "a row is not a number": lambda a: _with_row(a, torch.nan),
    "a row is infinite": lambda a: _with_row(a, torch.inf),
    "a row is zero": lambda a: _with_row(a, 0.0),
    "whole numbers": lambda a: a.to(torch.int64),
    "flat": lambda a: a.flatten(),
    "flags": lambda a: a.to(torch.bool),
}


def _with_row(array: torch.Tensor, value: float) -> torch.Tensor:
    altered = array.clone()
    altered[-2:] = value if array.is_floating_point() else 0
    return altered


KEYS = sorted(trace().arrays)
ALTERED = st.tuples(st.integers(0, 4), st.sampled_from(KEYS), st.sampled_from(["missing", *ALTERATIONS]))


@pytest.mark.slow
@settings(max_examples=300)
@given(st.sampled_from(sorted(FAULTS)), st.sampled_from(OPTIMIZERS), st.lists(ALTERED, min_size=1, max_size=3))
def test_altered_evidence_never_turns_a_difference_into_a_pass(
    fault: str, optimizer: str, altered: list[tuple[int, str, str]]
) -> None:
    found = list(traces(fault, optimizer))
    for index, key, how in altered:
        arrays = dict(found[index].arrays)
        if how == "missing":
            arrays.pop(key, None)
        elif key in arrays:
            arrays[key] = ALTERATIONS[how](arrays[key])
        found[index] = Trace(found[index].layout, arrays)
    try:
        assert judged(*found).exit_code in (1, 2)
    except RecordError as error:  # exit code 2 of `trainparity compare`
        assert "there is no noise floor" in str(error)


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("fault", FAULTS)
def test_the_faults_are_different_as_they_are(fault: str, optimizer: str) -> None:
    assert judged(*traces(fault, optimizer)).verdict == "different"


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("saved")
    for name, found in {"a": trace(), "a/twins/1": trace(twin=1), "b": trace(weights=(2.0,))}.items():
        found.save(folder / name)
    return folder


@pytest.mark.parametrize("narrow", [torch.float16, torch.bfloat16, torch.float32])
def test_a_trace_of_a_narrower_format_is_judged_by_its_values(narrow: torch.dtype, tmp_path: Path) -> None:
    """Once they ended in a traceback, as a product of tensors wants one format."""
    original, right = trace(), trace(weights=(2.0,))
    right.save(tmp_path / "b")
    for key in ("gradient/sketch", "activation_gradient/sketch", "setting/lr"):
        changed(original, **{key: original.arrays[key].to(narrow)}).save(tmp_path / "a")
        assert compare_folders(tmp_path / "a", tmp_path / "b").exit_code in (1, 2), key


@pytest.mark.parametrize("name", ["trace.json", "trace.safetensors", "status.json"])
@pytest.mark.parametrize("kind", ["pipe", "device"])
def test_what_can_be_read_without_end_is_no_trace(kind: str, name: str, tmp_path: Path) -> None:
    """Once a pipe in place of a file was waited for, and a device was read until memory was full."""
    for folder in ("a", "b"):
        trace().save(tmp_path / folder)
    place = tmp_path / "a" / name
    place.unlink(missing_ok=True)
    os.mkfifo(place) if kind == "pipe" else place.symlink_to("/dev/zero")
    verdict = compare_folders(tmp_path / "a", tmp_path / "b")
    assert verdict.exit_code == 2 and str(verdict.reason) == f"{place}: is no file"


def test_a_file_that_is_larger_than_its_header_says_is_not_read(tmp_path: Path) -> None:
    """Its 2^40 bytes are a hole, which costs no disk and all memory."""
    for folder in ("a", "b"):
        trace().save(tmp_path / folder)
    os.truncate(tmp_path / "a/trace.safetensors", 2**40)
    verdict = compare_folders(tmp_path / "a", tmp_path / "b")
    assert verdict.exit_code == 2 and "trace.safetensors: damaged" in str(verdict.reason)


PLACES = [f"{run}/trace.{kind}" for run in ("a", "a/twins/1", "b") for kind in ("json", "safetensors")]


@pytest.mark.slow
def test_every_damage_of_a_trace_is_noticed(saved: Path) -> None:
    """Bits flipped, bytes cut, added, zeroed and swapped: 2,000 of them, the same ones each time."""
    generator = torch.Generator().manual_seed(0)

    def draw(limit: int) -> int:
        return int(torch.randint(limit, (), generator=generator))

    undamaged = compare_folders(saved / "a", saved / "b")
    originals = {place: (saved / place).read_bytes() for place in PLACES}
    for number in range(2000):
        place = PLACES[draw(len(PLACES))]
        content = bytearray(originals[place])
        position, kind = draw(len(content)), draw(8)
        if kind < 4:
            content[position] ^= 1 << draw(8)
        elif kind == 4:
            del content[position:]
        elif kind == 5:
            content[position:position] = bytes([draw(256)])
        elif kind == 6:
            content[position : position + 16] = bytes(16)
        else:
            content = bytearray(originals[PLACES[draw(len(PLACES))]])
        (saved / place).write_bytes(content)
        verdict = compare_folders(saved / "a", saved / "b")
        (saved / place).write_bytes(originals[place])
        harmless = bytes(content) == originals[place] or (
            place.endswith("json") and verdict == undamaged
        )  # white space
        assert harmless or verdict.exit_code == 2, (number, place, position, kind, verdict)
    assert undamaged.verdict == "different" and compare_folders(saved / "a", saved / "b") == undamaged


def test_updates_that_begin_after_a_learning_rate_of_zero_are_no_jump() -> None:
    """Adam's step is nearly a sign: twins' updates part at once, and there were none before."""
    late: dict[str, Any] = {"lr": lambda step: 0.1 if step else 0.0}
    reference, moved = trace(**late), twins(**late)
    for by, twin in zip((0.05, -0.05, 0.1), moved, strict=False):
        update = twin.arrays["weight/sketch"] - twin.arrays["start/sketch"]
        twin.arrays["weight/sketch"][1] += by * update[1]
    assert NoiseFloor(reference, moved).flaw is None


def test_twins_whose_updates_part_together_from_the_references_are_of_other_code() -> None:
    """Of gradients that agree: an edit inside of the optimizer's step, which no rounding of gradients makes."""
    reference, moved = trace(), twins()
    for twin in moved:
        update = twin.arrays["weight/sketch"] - twin.arrays["start/sketch"]
        twin.arrays["weight/sketch"][0] += 0.05 * update[0]
    assert "parts from the reference in step 0, by 0.05 in the update" in (NoiseFloor(reference, moved).flaw or "")


@pytest.mark.parametrize(
    ("apart", "off", "verdict"),
    [
        (0.1, 0.2, "equivalent"), (0.11, 0.52, "cannot judge"), (0.2, 0.2, "cannot judge"),
        (0.2, 0.01, "cannot judge"), (0.2, 5e-4, "equivalent"),
    ],
)  # fmt: skip
def test_a_wide_floor_takes_a_smaller_margin_and_a_very_wide_one_proves_nothing(
    apart: float, off: float, verdict: str
) -> None:
    """No gradient that is half as large again is excused, whatever the twins are apart; what hardly is needs none."""
    bf16: dict[str, Any] = {"layout": {"precision": "bf16", "unit_roundoff": 2.0**-8}}
    moved = [trace(twin=n, gradients=scaled(1 + apart), **bf16) for n in (1, 2)]
    other = trace(gradients=scaled(1 + off), activations={"a": 1e-4, "norm": 1e-4}, **bf16)
    found = judged(trace(**bf16), other, *moved)
    assert found.verdict == verdict, found.explanation
    assert verdict != "equivalent" or (found.resolution or 1) <= 0.5
