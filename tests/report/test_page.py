import base64
import dataclasses
import hashlib
import json
import re
import statistics
import zlib
from html.parser import HTMLParser
from typing import Any

import pytest

from tests.report.conftest import ORIGIN
from tests.support.report_tree import MARGIN, detail, pair
from trainparity.records.curves import CurveResult
from trainparity.records.later_steps import LaterSteps
from trainparity.records.verdict import Verdict
from trainparity.report import data, page, pipeline
from trainparity.report.artifacts import Artifacts
from trainparity.report.comparison import Comparison, chips, headline
from trainparity.report.schema import Speedup, Summary

VOID = {"meta", "br", "line", "polyline", "link"}
HOSTILE = "</script><script>alert(1)</script>\x1b[2J\x00"


class Page(HTMLParser):
    """Everything on the page that a test asks about."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.text: list[str] = []
        self.scripts: list[str] = []
        self.feed(html)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        if tag not in VOID:
            assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] == "script":
            self.scripts.append(data)
        elif not self.open or self.open[-1] != "style":
            self.text.append(data)

    def all(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.elements if name == tag]

    @property
    def words(self) -> str:
        return re.sub(r"\s+", " ", "".join(self.text))

    @property
    def numbers(self) -> dict[str, Any]:
        """What the page's script draws."""
        return json.loads(zlib.decompress(base64.b64decode(self.scripts[0])))  # type: ignore[no-any-return]


@pytest.fixture(scope="module")
def parsed(html: str) -> Page:
    return Page(html)


def compared(*verdicts: Verdict, scale: float = 2.0) -> Page:
    """Return the page of a command."""
    titles = {f"{one.left} / {one.right}": one for one in verdicts}
    details = {title: {"": detail(scale)} for title, one in titles.items() if one.worst}
    return Page(page.compared(titles, details, ORIGIN, command="compare"))


def different(**changes: Any) -> Verdict:
    fields: dict[str, Any] = {
        "step": 3, "tensor": "gradient head.weight", "reason": "beyond 16 x the noise floor from step 3 on",
        "cause": "loss-normalisation", "link": "loss", "explanation": "the gradient is 2 x the reference's",
        "advice": "divide the loss by the number of micro-batches", "evidence": {"scale": 2.0},
    }  # fmt: skip
    return pair(**{"right": "accumulated", "verdict": "different"} | fields | changes)


def test_elements_are_closed_in_order(parsed: Page) -> None:
    assert parsed.open == []


def test_the_page_needs_nothing_from_elsewhere(html: str, parsed: Page) -> None:
    assert not {"link", "img", "iframe", "object"} & {tag for tag, _ in parsed.elements}
    beside = {"summary.json", "parity.csv", "timing.csv"}
    for _, attributes in parsed.elements:
        assert "src" not in attributes and "xlink:href" not in attributes
        link = attributes.get("href") or "#"
        assert link.startswith("#") or link in beside
    assert "@import" not in html
    assert "url(" not in re.sub(r"<script.*?</script>", "", html, flags=re.DOTALL)


def test_the_policy_allows_the_pages_own_scripts_and_no_other(parsed: Page) -> None:
    [policy] = [meta["content"] or "" for meta in parsed.all("meta") if "Security" in (meta.get("http-equiv") or "")]
    assert policy.startswith("default-src 'none';")
    allowed = re.search(r"script-src ([^;]*)", policy)
    hashes = [base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() for text in parsed.scripts[1:]]
    assert allowed and allowed[1].split() == [f"'sha256-{digest}'" for digest in hashes]
    assert len(hashes) == 2 and parsed.all("script")[0]["type"] == "text/plain"
    assert not [name for _, attributes in parsed.elements for name in attributes if name.startswith("on")]


def test_ids_are_unique_and_the_contents_lead_to_every_section(parsed: Page) -> None:
    ids = [attributes["id"] for _, attributes in parsed.elements if "id" in attributes]
    assert len(ids) == len(set(ids))
    anchors = [str(link["href"]) for link in parsed.all("a") if str(link["href"]).startswith("#")]
    assert {anchor[1:] for anchor in anchors} <= set(ids)
    assert [f"#{section['aria-labelledby']}" for section in parsed.all("section")] == anchors[1:]


def test_every_table_is_named_for_those_who_do_not_see_it(parsed: Page) -> None:
    assert len(parsed.all("caption")) == len(parsed.all("table")) > 10
    assert {header.get("scope") for header in parsed.all("th")} == {"col", "row"}


def test_what_differs_comes_first(parsed: Page) -> None:
    words = parsed.words
    assert "1 of 9 comparisons shows a different training." in words
    assert "Contents" not in words and " 1 different 1 failed 6 same (1 emulated) 1 skipped " in words
    assert "1 different, 1 failed and 1 skipped; 5 of 6 trained configurations" in words
    headings = re.findall(r"What differs|Not judged|The same training|Skipped", words)
    assert headings[:4] == ["What differs", "Not judged", "The same training", "Skipped"]


def test_only_what_was_run_and_proved_is_green(html: str) -> None:
    for word, classes in (
        ("equivalent", {"equivalent", "emulated"}),
        ("skipped", {"skipped"}),
        ("failed", {"failed"}),
    ):
        found = re.findall(rf'class="verdict ([\w-]+)"><i[^>]*>.</i> {word}<', html)
        assert found
        assert set(found) <= classes
    emulated = re.findall(
        r'(?:th scope="row"|class="name")>(?:reference / )?dp<(?:(?!</tr>).)*?class="verdict ([\w-]+)"', html, re.DOTALL
    )
    assert emulated == ["emulated"] * 3  # as pair that is the same training, as configuration, over its distances


def test_the_page_says_why_and_what_to_do(parsed: Page) -> None:
    for expected in (
        "no Apple GPU here",
        "run it on a Mac",
        "out of memory [rank 0]",
        "trainparity train --again broken",
        "Speed-up judged of 4 of 6 trained configurations: the largest gain is compiled's: 1.59×",
        "1 withheld as not shown to be the same training",
        "compiled: compilation took 21.4 s, which 14.8 ms saved at each step pay back after 1,447 steps.",
        "article B's published weights (B1): reproduced by ddp and gradaccum to 4 digits",
        "measured 2026-03-01 12:30 to 2026-03-02 08:00 UTC",
    ):
        assert expected in parsed.words


def test_a_difference_stands_with_cause_place_evidence_and_repair() -> None:
    shown = compared(different())
    assert "accumulated is a different training from reference." in shown.words
    for expected in (
        "Cause: the gradient is 2 x the reference's.",
        "Evidence: beyond 16 x the noise floor from step 3 on.",
        "To change: divide the loss by the number of micro-batches.",
        "inputsforwardloss they part herebackwardaccumulationreductionclippingupdatebuffers",
    ):
        assert expected in shown.words
    assert [item for item in shown.all("li") if item.get("aria-current") == "step"]
    assert [place["data-first"] for place in shown.all("div") if "data-first" in place] == ["gradient head.weight"]


def test_the_start_is_a_link_only_where_the_runs_part_there() -> None:
    assert "start they part hereinputs" in compared(different(link="start")).words
    assert "Too little was recorded to place the difference" in compared(different(link=None)).words


def test_what_is_the_same_says_what_would_have_been_seen() -> None:
    seen = {"kind": "gradient", "whole": 2e-6, "weakest": 3e-5, "tensor": "head.bias"}
    words = compared(pair("ddp", resolutions=[seen])).words
    assert "ddp is the same training as reference." in words
    assert "at most 0.900 × the floor" in words and "2.0e-6" in words and "head.bias" in words


def test_what_is_the_same_says_how_many_of_its_steps_were_compared() -> None:
    assert "Compared: all 24 steps that were made." in compared(pair("ddp", steps_compared=24, steps_made=24)).words
    later = [LaterSteps(first=8, last=23, judged_by="weights at the end")]
    words = compared(pair("ddp", steps_compared=8, steps_made=24, later_steps=later)).words
    assert "Compared: 8 of the 24 steps that were made." in words
    assert "ompared by the weights at the end alone: steps 8 to 23: a fault within the noise floor" in words
    assert "interval=1" in words


def test_what_float64_acquitted_is_not_called_within_the_margin() -> None:
    fields = {"distance_over_floor": 5e6, "confirmation": "in float64 the largest distance is 5e-14: it was rounding"}
    words = compared(pair("compiled", **fields)).words
    assert "beyond the margin, but in float64 the largest distance is 5e-14" in words and "at most 5" not in words


def test_what_learns_otherwise_is_told_before_what_is_the_same() -> None:
    drifted = CurveResult(verdict="drifted", reason="it learns less", runs=[5, 5], level=0.05)
    comparisons = [Comparison(number=0, title="a", verdict=pair("bf16", curves=drifted))]
    assert headline(comparisons) == "bf16 learns otherwise than reference."
    assert [chip.word for chip in chips(comparisons)] == ["drifted"]
    assert "it learns less." in compared(pair("bf16", curves=drifted)).words


@pytest.mark.parametrize("outcome", ["cannot judge", "skipped", "failed"])
def test_what_was_not_judged_says_so(outcome: str) -> None:
    words = compared(pair("b", outcome, reason="nothing was recorded", advice="ask float64")).words
    assert f"b was not compared with reference: {outcome}." in words and "nothing was recorded" in words
    assert "ask float64" in words


def test_the_numbers_of_the_plots_are_those_of_the_detail() -> None:
    found = detail(1e5)
    [drawn] = compared(different(), scale=1e5).numbers["pairs"]
    strip = drawn["models"][0]["strips"][1]
    assert (strip["kind"], strip["tensors"], strip["steps"]) == ("gradient", found.strips[1].tensors, found.steps)
    for row, (distances, floors) in enumerate(zip(found.strips[1].distance, found.strips[1].floor, strict=True)):
        for column, (distance, floor) in enumerate(zip(distances, floors, strict=True)):
            assert 10 ** (strip["ratio"][row][column] / 100) == pytest.approx((distance or 0) / (floor or 1), rel=0.012)
            assert 10 ** (strip["floor"][row][column] / 100) == pytest.approx(floor, rel=0.012)
    assert drawn["margin"] == MARGIN and drawn["models"][0]["facts"][0]["band"] == found.facts[0].band


def test_the_losses_are_those_of_the_runs_with_the_band_of_the_twins(read: Artifacts, parsed: Page) -> None:
    losses = parsed.numbers["curves"]
    assert losses["steps"] == list(range(40)) and set(losses["runs"]) == {
        n for n, r in read.configurations.items() if r.losses
    }
    assert losses["runs"]["ddp"] == pytest.approx([loss for _, loss in read.configurations["ddp"].losses], rel=1e-5)
    apart = [
        a[1] - b[1]
        for a, b in zip(read.configurations["lr-doubled"].losses, read.references["fp32"].losses, strict=True)
    ]
    assert losses["differences"]["lr-doubled"] == pytest.approx(apart, rel=6e-3)
    assert losses["band"] == [1e-7] * 40


def test_the_pairs_of_steps_are_those_that_the_speedup_is_made_of(built: Summary, parsed: Page) -> None:
    ratios = parsed.numbers["ratios"]
    assert set(ratios) == {name for name, run in built.configurations.items() if run.speedup}
    for name, found in ratios.items():
        speedup = built.configurations[name].speedup
        assert speedup and statistics.median(found) == pytest.approx(speedup.ratio, rel=1e-3)


@pytest.mark.slow
def test_many_runs_make_a_page_that_can_be_sent() -> None:
    verdicts = {f"pair {number}": different(right=f"run-{number}") for number in range(60)}
    big = {"": detail(1e4, tensors=300, steps=200)}
    html = page.compared(verdicts, dict.fromkeys(verdicts, big), ORIGIN, command="compare")
    assert len(html.encode()) < 3_000_000
    strips = [s for one in Page(html).numbers["pairs"] for model in one["models"] for s in model["strips"]]
    assert sum(len(strip["tensors"]) * len(strip["steps"]) * 2 for strip in strips) <= data.CELLS
    assert all(max(max(row) for row in strip["ratio"]) == 400 for strip in strips), "the worst cells are kept"


def test_text_from_a_run_is_no_markup(built: Summary, read: Artifacts) -> None:
    facts = dict.fromkeys(("tensor", "reason", "cause", "explanation", "advice", "confirmation", "model"), HOSTILE)
    verdict = different(**facts | {"left": HOSTILE, "right": HOSTILE, "evidence": {HOSTILE: HOSTILE}})
    strips = [strip.model_copy(update={"tensors": [HOSTILE] * 7}) for strip in detail(9.0).strips]
    bad = detail(9.0, strips=strips, samples=HOSTILE, environment={HOSTILE: (HOSTILE, HOSTILE)})
    commanded = page.compared({HOSTILE: verdict}, {HOSTILE: {HOSTILE: bad, "b": bad}}, ORIGIN, command=HOSTILE)
    pairs = built.pairs | {"broken": built.pairs["broken"].model_copy(update={"reason": HOSTILE})}
    whole = pipeline.render(built.model_copy(update={"pairs": pairs}), read, ORIGIN)
    for html in (commanded, whole):
        assert len(Page(html).all("script")) == 3 and "&lt;script&gt;" in html
        assert not set(html) & {"\x1b", "\x00"}


def test_the_names_of_runs_stay_as_they_are_above_a_column() -> None:
    both = {"": detail(9.0, environment={"torch": ("2.14", "2.15")})}
    html = page.compared({"pair": different(left="runs/a", right="runs/b")}, {"pair": both}, ORIGIN, command="compare")
    assert '<th scope="col">Fact</th><th scope="col">runs/a</th><th scope="col">runs/b</th>' in html


def test_a_diverged_pair_and_a_floor_of_zero_can_be_shown(built: Summary, read: Artifacts) -> None:
    found = detail(1.0, tensors=2, steps=3)
    strip = found.strips[1].model_copy(update={"distance": [[0.0, 1e300, None]] * 3, "floor": [[0.0, 1e-7, 0.0]] * 3})
    changed = dataclasses.replace(read, details={"ddp": found.model_copy(update={"strips": [strip]})})
    drawn = Page(pipeline.render(built, changed, ORIGIN)).numbers["pairs"][list(built.pairs).index("ddp")]
    assert drawn["models"][0]["strips"][0]["ratio"][0] == [-99999, 30000, None]


def test_commands_within_sentences_are_code(parsed: Page, html: str) -> None:
    assert "<code>trainparity train --again broken</code>" in html and "`" not in parsed.words


def test_the_parts_of_a_step_are_shown_or_said_not_to_be_measured(built: Summary, read: Artifacts) -> None:
    ddp = built.configurations["ddp"]
    assert ddp.timing
    changed = ddp.model_copy(update={"timing": ddp.timing.model_copy(update={"parts": None})})
    runs = built.configurations | {"ddp": changed}
    html = pipeline.render(built.model_copy(update={"configurations": runs}), read, ORIGIN)
    rows = re.findall(r'<li><span class="name">([^<]*)</span>.*?<span class="value">([^<]*)</span>',
                      html.partition('class="bars stacked"')[2].partition("</ul>")[0])  # fmt: skip
    shown = dict(rows)
    assert shown["reference-fp32"] == "data 0.200, forward 12, backward 24, optimizer 3.80 ms"
    assert shown["ddp"] == "not measured" and "dp" not in shown  # which is emulated


def test_where_nothing_is_faster_the_references_mark_is_on_the_axis(built: Summary, read: Artifacts) -> None:
    slow = Speedup(ratio=0.4, low=0.3, high=0.5)
    runs = {n: r.model_copy(update={"speedup": r.speedup and slow}) for n, r in built.configurations.items()}
    html = pipeline.render(built.model_copy(update={"configurations": runs}), read, ORIGIN)
    places = [float(place) for place in re.findall(r'class="mark" style="left:([\d.]+)%', html)]
    assert places and max(places) < 100


def test_a_pipeline_that_trained_nothing_has_a_page(built: Summary, read: Artifacts) -> None:
    nothing = {"trained": "skipped", "failed": "failed", "skipped": "skipped"}
    runs = {
        name: run.model_copy(
            update={
                "status": run.status.model_copy(update={"status": nothing[run.status.status]}),
                **{"timing": None, "figures": None, "speedup": None},
            }
        )
        for name, run in built.configurations.items()
    }
    configurations = {name: dataclasses.replace(run, losses=()) for name, run in read.configurations.items()}
    untrained = dataclasses.replace(read, configurations=configurations, details={})
    html = pipeline.render(built.model_copy(update={"configurations": runs, "known_answer": None}), untrained, ORIGIN)
    assert "0 of 0 trained" in html and "nothing trained" in html
    assert Page(html).numbers["curves"] is None
