"""The pages in a real Chromium: nothing is asked of the network, everything is drawn, axe finds nothing."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.report.conftest import ORIGIN
from tests.report.test_page import HOSTILE, different
from tests.support.browser import CHROMIUM, Seen, violations
from tests.support.report_tree import detail, pair
from trainparity.records.detail import Strip
from trainparity.records.numbers import number
from trainparity.report import page, pipeline
from trainparity.report.artifacts import Artifacts
from trainparity.report.schema import Summary

playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium: apt-get install chromium")


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with playwright.sync_playwright() as started:
        browser = started.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory, built: Summary, read: Artifacts) -> dict[str, Path]:
    """The pipeline's page, several differences, two foreign runs, sixty runs, and names that mean harm."""
    several = {f"candidate-{n}": different(right=f"candidate-{n}") for n in range(4)}
    verdicts = several | {"same": pair("same"), "unread": pair("unread", "cannot judge", reason="no twins")}
    judged = {name: {"": detail(10.0**n)} for n, name in enumerate([*several, "same"])}
    big = detail(1e4, tensors=300, steps=200)
    sixty = {f"run-{n}": different(right=f"run-{n}") for n in range(60)}
    strips = [strip.model_copy(update={"tensors": [HOSTILE] * len(strip.tensors)}) for strip in detail(9.0).strips]
    bad = detail(9.0, strips=strips, samples=HOSTILE, environment={HOSTILE: (HOSTILE, HOSTILE)})
    harm = dict.fromkeys(("tensor", "reason", "cause", "explanation", "advice", "left", "right"), HOSTILE)
    texts = {
        "pipeline": pipeline.render(built, read, ORIGIN),
        "several": page.compared(verdicts, judged, ORIGIN, command="check mlp"),
        "two": page.compared(
            {"a / b": different(left="a", right="b")},
            {"a / b": {"G": detail(1e4), "D": detail(1e3)}},
            ORIGIN,
            command="ab",
        ),
        "sixty": page.compared(sixty, {key: {"": big} for key in sixty}, ORIGIN, command="check big"),
        "hostile": page.compared({HOSTILE: different(**harm)}, {HOSTILE: {"": bad}}, ORIGIN, command=HOSTILE),
    }
    folder = tmp_path_factory.mktemp("pages")
    for name, text in texts.items():
        (folder / f"{name}.html").write_text(text, encoding="utf-8")
    return {name: folder / f"{name}.html" for name in texts}


@pytest.mark.parametrize("name", ["pipeline", "several", "two", "sixty", "hostile"])
def test_every_plot_is_drawn_without_an_error_or_a_request(browser: Any, pages: dict[str, Path], name: str) -> None:
    with Seen(browser, pages[name]) as seen:
        if name == "sixty":  # what is closed waits
            assert seen.page.locator("canvas").count() == 0
            seen.page.locator("details summary").first.click()
            seen.page.wait_for_selector(".chosen canvas")
        else:
            seen.page.evaluate("openAll()")
            for model in seen.page.locator(".model").all():
                equal = "is exactly 0" in model.locator(".hint").first.inner_text()
                assert model.locator(".strips canvas").count() == (0 if equal else 4)
                assert model.locator(".plot canvas").count() >= (2 if equal else 5)
        drawn = seen.page.evaluate("[...document.querySelectorAll('canvas')].map(c => c.width * c.height)")
        assert all(drawn) and drawn
        empty = "[...document.querySelectorAll('.plot')].filter(plot => !plot.querySelector('canvas')).length"
        assert seen.page.evaluate(empty) == 0
    assert seen.requests == [pages[name].as_uri()] and seen.messages == []


@pytest.mark.parametrize(
    ("name", "scheme", "width"),
    [
        ("pipeline", "light", 390),
        ("pipeline", "dark", 768),
        ("pipeline", "light", 1440),
        ("several", "light", 768),
        ("two", "dark", 390),
    ],
)
def test_axe_finds_nothing_and_nothing_is_cut(
    browser: Any, pages: dict[str, Path], name: str, scheme: str, width: int
) -> None:
    with Seen(browser, pages[name], width=width, scheme=scheme) as seen:
        seen.page.evaluate("openAll()")
        assert violations(seen.page) == []
        assert seen.page.evaluate("document.documentElement.scrollWidth") == width


def test_the_page_shows_the_values_of_the_summary(browser: Any, pages: dict[str, Path], built: Summary) -> None:
    with Seen(browser, pages["pipeline"]) as seen:
        table = seen.page.locator("table", has_text="Verdict, time and memory of each configuration")
        rows = {
            row.locator("th").inner_text().splitlines()[0]: row.inner_text() for row in table.locator("tbody tr").all()
        }
        for name, run in built.configurations.items():
            cells = re.split(r"\s+", rows[name])
            assert (run.status.status if run.verdict is None else run.verdict.verdict).split()[0] in cells
            if run.figures:
                assert number(run.figures.step_ms.median) in cells
            if run.speedup:
                assert f"{run.speedup.ratio:.2f}×" in cells


def test_a_table_is_sorted_by_its_headings(browser: Any, pages: dict[str, Path], built: Summary) -> None:
    with Seen(browser, pages["pipeline"]) as seen:
        heading = seen.page.get_by_role("button", name="Samples / s").first
        for direction in (1, -1):
            heading.click()
            cells = heading.locator("xpath=ancestor::table").locator("tbody tr td:nth-child(6)").all_inner_texts()
            figures = [float(cell.replace(",", "")) for cell in cells if cell != "–"]
            assert figures == sorted(figures)[::direction] and len(figures) == 7 and cells[-1] == "–"


def test_the_first_tensor_beyond_the_margin_is_drawn_and_keys_choose_another(
    browser: Any, pages: dict[str, Path]
) -> None:
    with Seen(browser, pages["two"]) as seen:
        choice = seen.page.get_by_label("Tensor or layer").first
        shown = seen.page.locator(".chosen .plot-title").first
        assert shown.inner_text() == "gradient head.weight"
        choice.focus()
        seen.page.keyboard.press("ArrowUp")
        before = detail(1.0).strips[1].tensors[-2]
        assert shown.inner_text() == f"gradient {before}"
        seen.page.locator(".strips canvas").nth(3).click(position={"x": 5, "y": 2})
        assert shown.inner_text() == "weight (all)"


def test_a_plot_tells_its_values_by_keyboard(browser: Any, pages: dict[str, Path]) -> None:
    with Seen(browser, pages["two"]) as seen:
        plot = seen.page.locator(".chosen .plot").first
        plot.focus()
        for _ in range(3):
            seen.page.keyboard.press("ArrowRight")
        values = [text for text in plot.locator(".u-value").all_inner_texts() if text != "–"]
        strip: Strip = detail(1e4).strips[1]
        assert values[0] == str(strip.steps[2]) and len(values) == 4
        assert float(values[1]) == pytest.approx(strip.distance[-1][2], rel=0.06)
        norms = seen.page.locator(".chosen .plot").nth(1)
        norms.focus()
        seen.page.keyboard.press("ArrowRight")
        shown = [float(text) for text in norms.locator(".u-value").all_inner_texts()]
        assert shown == pytest.approx([0, strip.left_norm[-1][0], strip.right_norm[-1][0]], rel=0.003)


def test_paper_holds_every_detail(browser: Any, pages: dict[str, Path]) -> None:
    with Seen(browser, pages["several"]) as seen:
        assert seen.page.locator("details:not([open])").count() > 0
        seen.page.pdf(path=str(pages["several"].with_suffix(".pdf")), format="A4")
        assert seen.page.locator("details:not([open])").count() == 0
        seen.page.emulate_media(media="print")
        seen.page.set_viewport_size({"width": 718, "height": 1000})  # A4 less its margins, at 96 dpi
        edges = "[...document.querySelectorAll('table')].map(table => table.getBoundingClientRect().right)"
        assert max(seen.page.evaluate(edges)) <= 719


def test_without_scripts_the_answer_is_there(browser: Any, pages: dict[str, Path]) -> None:
    context = browser.new_context(java_script_enabled=False)
    shown = context.new_page()
    shown.goto(pages["several"].as_uri())
    text = shown.locator("body").inner_text()
    context.close()
    assert "Plots and sorting need JavaScript" in text and text.count("they part here") == 4
