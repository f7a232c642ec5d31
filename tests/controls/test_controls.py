"""The catalogue on real runs: every wrong loop caught and named, no right one called different."""

import sys
from dataclasses import replace

import pytest

from tests.support import warm
from trainparity.controls.catalogue import RIGHT, WRONG, Control
from trainparity.controls.run import run_controls
from trainparity.parity.causes import IDENTIFIERS
from trainparity.records.controls import ControlReport, ControlResult

ON_ALL = pytest.mark.study
"""The sweep takes two minutes; that each rule finds its cause is tested beside the rules."""


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> list[ControlResult]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "executable", warm.python())
        controls = [_on_fewer_models(control, number) for number, control in enumerate((*RIGHT, *WRONG))]
        return run_controls(tmp_path_factory.mktemp("controls"), [1], [c for c in controls if not _slow(c)])


def _on_fewer_models(control: Control, number: int) -> Control:
    """Leave two models of three to `make controls`; others for each control."""
    if len(control.models) < 3:
        return control
    return replace(control, models=(control.models[number % len(control.models)],))


def _slow(control: Control) -> bool:
    """Tell whether a control is left to `make controls`: these models are compiled for a minute."""
    return not {"swin", "convnext"}.isdisjoint(control.models)


@ON_ALL
def test_every_wrong_loop_is_caught_and_given_exactly_its_cause(results: list[ControlResult]) -> None:
    wrong = [result for result in results if result.expected]
    assert {r.name: r.causes for r in wrong} == {r.name: {r.expected: r.trials} for r in wrong}


@ON_ALL
def test_no_right_loop_is_called_different(results: list[ControlResult]) -> None:
    right = [result for result in results if not result.expected]
    assert {r.name: r.different + r.not_judged for r in right} == {r.name: 0 for r in right}
    assert max(r.largest or 0 for r in right) < 8


@ON_ALL
def test_wrong_loops_lie_far_beyond_what_right_ones_reach(results: list[ControlResult]) -> None:
    wrong = [r for r in results if r.expected and r.smallest is not None and not r.coarse]
    assert min(float(r.smallest or 0) for r in wrong) > 100


@ON_ALL
def test_in_coarse_formats_facts_are_caught_that_the_floor_would_hide(results: list[ControlResult]) -> None:
    coarse = [result for result in results if result.coarse]
    assert any((r.smallest or 0) < 6 for r in coarse if r.expected) and max(r.largest or 0 for r in coarse) > 100
    assert max(r.largest or 0 for r in coarse if not r.expected) < 4


def test_every_cause_has_a_control() -> None:
    controlled = {control.cause for control in WRONG}
    assert controlled == set(IDENTIFIERS)


def test_names_are_unique_and_every_control_says_what_it_is() -> None:
    names = [control.name for control in (*RIGHT, *WRONG)]
    assert len(set(names)) == len(names)
    assert all(control.what.endswith(".") for control in (*RIGHT, *WRONG))


def report(**changes: int) -> ControlReport:
    def result(expected: str | None, different: int, causes: dict[str, int]) -> ControlResult:
        return ControlResult(
            name="x", what="", expected=expected, models=[], ranks=1, trials=10, different=different,
            not_judged=changes.get("not_judged", 0) if expected is None else 0, causes=causes, smallest=1, largest=2,
        )  # fmt: skip

    named, unknown = changes.get("named", 10), changes.get("unknown", 0)
    wrong = result("clipping", changes.get("caught", 10), {"clipping": named, "unknown": unknown, "schedule": 0})
    other = {"schedule": changes["misnamed"]} if "misnamed" in changes else {}
    controls = [result(None, changes.get("alarms", 0), {}), wrong.model_copy(update={"causes": wrong.causes | other})]
    return ControlReport(date="", fingerprint="", machine="", torch="", seeds=1, controls=controls)


def test_the_report_passes_only_if_nothing_was_missed_misnamed_or_alarmed() -> None:
    assert report().passed
    assert report(named=9, unknown=1).passed
    assert not report(named=8, unknown=2).passed
    assert not report(named=9, misnamed=1).passed
    assert not report(caught=9, named=9).passed
    assert not report(alarms=1).passed
    assert not report(not_judged=1).passed
