"""Published against measured figures on one axis."""

import dataclasses
import math

import pytest

from tests.report.conftest import ORIGIN
from trainparity.records.claims import ClaimReport, ClaimResult
from trainparity.report import claims, pipeline
from trainparity.report.artifacts import Artifacts
from trainparity.report.schema import Summary


def claim(
    name: str, value: float | None, figure: float | None, verdict: str = "confirmed", **more: object
) -> ClaimResult:
    fields = {"name": name, "statement": "s", "published": "p", "measured": "m", "hardware": None, "verdict": verdict}
    return ClaimResult.model_validate(fields | {"value": value, "figure": figure} | more)


FOUND = [
    claim("twice", 28.0, 14.0, low=7.0, high=28.0),
    claim("hundredth", 0.01, 1.0, "not confirmed", low=0.5),
    claim("words", None, 3.0),
    claim("none", 3.0, None),
    claim("zero", 0.0, 3.0),
]


def test_ratios_stand_on_a_logarithmic_axis_around_the_published_figure() -> None:
    axis = claims.of(FOUND)
    assert axis and axis.published == 50 and [row.claim.name for row in axis.rows] == ["twice", "hundredth"]
    twice, hundredth = axis.rows
    assert (twice.text, hundredth.text) == ("2 ×", "0.010 ×")
    decade = (50 - hundredth.place) / 2
    assert twice.place - 50 == pytest.approx(decade * math.log10(2), abs=0.02)
    assert 50 - twice.low == pytest.approx(twice.place - 50, abs=0.02) and twice.high == twice.place
    assert hundredth.place < hundredth.low < hundredth.high == 100
    assert dict(axis.ticks)[50] == "1×" and [text for _, text in axis.ticks] == ["0.01×", "0.1×", "1×", "10×", "100×"]


def test_without_two_figures_there_is_no_plot() -> None:
    assert claims.of(FOUND[2:]) is None


def test_the_page_of_a_study_shows_verdicts_on_it_as_symbol_and_word(built: Summary, read: Artifacts) -> None:
    report = ClaimReport(study="s", scale=None, dataset="", environment="", fingerprint="", date="", results=FOUND)
    html = pipeline.render(
        built.model_copy(update={"claims": report}), dataclasses.replace(read, claims=report), ORIGIN
    )
    [plot] = [part.partition("</ul>")[0] for part in html.split('<ul class="bars claims-plot"')[1:]]
    assert plot.count("<li><span") == 2 and plot.count(">✓</b>") == plot.count(">✕</b>") == 1
    assert plot.count("confirmed") - plot.count("not-confirmed") - plot.count("not confirmed") >= 2
