import dataclasses
import math
import re
from html.parser import HTMLParser

import pytest

from trainparity.report import page
from trainparity.report.artifacts import Artifacts, Distance
from trainparity.report.schema import Summary

VOID = {"meta", "br", "path", "use", "rect", "link"}


class Page(HTMLParser):
    """Everything on the page that a test asks about."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.text: list[str] = []
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
        self.text.append(data)

    def all(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.elements if name == tag]


@pytest.fixture(scope="module")
def parsed(html: str) -> Page:
    return Page(html)


def test_elements_are_closed_in_order(parsed: Page) -> None:
    assert parsed.open == []


def test_the_page_needs_nothing_from_elsewhere(html: str, parsed: Page) -> None:
    assert not {"script", "link", "img", "iframe", "object"} & {tag for tag, _ in parsed.elements}
    for _, attributes in parsed.elements:
        for name in ("src", "href", "xlink:href"):
            assert (attributes.get(name) or "#").startswith("#")
    assert "@import" not in html
    assert not re.search(r"url\((?!#)", html)
    assert any("default-src 'none'" in (meta.get("content") or "") for meta in parsed.all("meta"))


def test_ids_are_unique(parsed: Page) -> None:
    ids = [attributes["id"] for _, attributes in parsed.elements if "id" in attributes]
    assert len(ids) == len(set(ids))


def test_references_within_the_page_lead_somewhere(html: str, parsed: Page) -> None:
    ids = {attributes.get("id") for _, attributes in parsed.elements}
    wanted = {str(attributes["xlink:href"])[1:] for attributes in parsed.all("use")}
    assert wanted | set(re.findall(r"url\(#([^)]+)\)", html)) <= ids


def test_every_plot_and_table_is_named_for_those_who_do_not_see_it(parsed: Page) -> None:
    assert len(parsed.all("svg")) == 7 + 6 + 1  # judged pairs, trained configurations, step times
    assert all(svg.get("role") == "img" and svg.get("aria-label") for svg in parsed.all("svg"))
    assert len(parsed.all("caption")) == len(parsed.all("table"))
    assert {header.get("scope") for header in parsed.all("th")} == {"col", "row"}


def test_light_and_dark_follow_the_reader(html: str) -> None:
    assert "@media (prefers-color-scheme: dark)" in html
    assert not re.search(r"#01020[0-9]", html), "a stand-in colour was left in a plot"
    assert {"var(--accent)", "var(--band)", "currentColor"} <= set(re.findall(r"var\(--\w+\)|currentColor", html))


def test_only_what_was_run_and_proved_is_green(html: str) -> None:
    for word, classes in (
        ("equivalent", {"equivalent", "emulated"}),
        ("skipped", {"skipped"}),
        ("failed", {"failed"}),
    ):
        found = re.findall(rf'class="verdict ([\w-]+)"><i[^>]*>.</i> {word}<', html)
        assert found
        assert set(found) <= classes
    emulated = re.findall(r'<(?:th scope="row"|h3)>(?:reference / )?dp<.*?class="verdict ([\w-]+)"', html, re.DOTALL)
    assert emulated == ["emulated"] * 4  # as configuration, as pair, over its distances, over its loss


def test_the_page_says_why_and_what_to_do(parsed: Page) -> None:
    text = re.sub(r"\s+", " ", "".join(parsed.text))
    for expected in (
        "no Apple GPU here",
        "run it on a Mac",
        "out of memory [rank 0]",
        "dvc repro -s -f train@broken",
        "5 of 6 trained configurations (1 emulated) are the same training as the reference",
        "The largest gain is compiled's: 1.60×",
        "article B's published weights (B1): reproduced by ddp and gradaccum to 4 digits",
        "measured 2026-03-01 12:30 to 2026-03-02 08:00 UTC",
    ):
        assert expected in text


def test_text_from_a_run_is_no_markup(built: Summary, unplotted: Artifacts) -> None:
    script = "<script>alert(1)</script>"
    broken = built.configurations["broken"]
    status = broken.status.model_copy(update={"reason": script})
    hostile = broken.model_copy(update={"status": status})
    facts = dict.fromkeys(("tensor", "reason", "cause", "explanation", "advice", "confirmation"), script)
    pair = built.pairs["lr-doubled"].model_copy(update=facts | {"evidence": {script: script}})
    changed = built.model_copy(
        update={
            "configurations": built.configurations | {"broken": hostile},
            "pairs": built.pairs | {"lr-doubled": pair},
        }
    )
    html = page.render(changed, unplotted)
    assert "<script" not in html and "&lt;script&gt;" in html


def test_a_diverged_pair_and_a_floor_of_zero_can_be_drawn(built: Summary, unplotted: Artifacts) -> None:
    rows = [
        Distance(0, "weight", 0.0, 0.0),
        Distance(1, "weight", math.inf, 1e-7),
        Distance(2, "weight", math.nan, 0.0),
    ]
    changed = dataclasses.replace(unplotted, distances={"ddp": rows, "gradaccum": rows[:1]})
    assert "ddp" in page.render(built, changed)


def test_a_pipeline_that_trained_nothing_has_a_page(built: Summary, unplotted: Artifacts) -> None:
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
    html = page.render(built.model_copy(update={"configurations": runs, "known_answer": None}), unplotted)
    assert "0 of 0 trained" in html
    assert "<svg" not in html
