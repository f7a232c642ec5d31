"""Bars as SVG files, and the document that shows them."""

import re
import xml.etree.ElementTree as ET

import pytest

from tests.report.conftest import ORIGIN
from tests.support.report_tree import pair
from trainparity.report import markdown, pictures
from trainparity.report.schema import Summary

SVG = "{http://www.w3.org/2000/svg}"


def bars(picture: str) -> list[tuple[float, float]]:
    """Return left end and width of each bar."""
    found = ET.fromstring(picture).findall(f"{SVG}rect")
    return [(float(bar.attrib["x"]), float(bar.attrib["width"])) for bar in found if bar.attrib["height"] == "12"]


def words(picture: str) -> list[str]:
    return ["".join(text.itertext()) for text in ET.fromstring(picture).findall(f"{SVG}text")]


def test_a_picture_has_a_bar_for_each_figure_in_its_place(built: Summary) -> None:
    drawn = pictures.figures(built)
    shown = pictures.speedups(built)
    found = bars(drawn["speedup.svg"])
    assert len(found) == len(shown) == 4
    [mark] = ET.fromstring(drawn["speedup.svg"]).findall(f"{SVG}line")
    unit = float(mark.attrib["x1"]) - 220  # a speed-up of 1
    for (left, width), (_, low, _, high, _) in zip(found, shown, strict=True):
        assert left == pytest.approx(220 + low * unit, abs=0.2)
        assert width == pytest.approx(max((high - low) * unit, 2), abs=0.2)
    assert "reference / lr-doubled" in words(drawn["distance.svg"]) and "different, 200,000 ×" in words(
        drawn["distance.svg"]
    )
    assert not any(text == "dp" for text in words(drawn["step_time.svg"])), "it is emulated"


def test_what_has_no_bar_has_no_picture_and_names_are_no_markup(built: Summary) -> None:
    hostile = pair("</text><script>alert(1)</script>\x1b", "bitwise")
    nothing = built.model_copy(update={"configurations": {}, "references": {}, "pairs": {"one": hostile}})
    drawn = pictures.figures(nothing)
    assert list(drawn) == ["distance.svg"]
    assert not ET.fromstring(drawn["distance.svg"]).findall(f".//{SVG}script")
    assert "reference / </text><script>alert(1)</script>\N{REPLACEMENT CHARACTER}" in words(drawn["distance.svg"])


def test_the_document_names_every_figure_on_its_line(built: Summary) -> None:
    text = markdown.report(built, ORIGIN, pictures.figures(built))
    assert text.startswith("# ddpm on digits\n")
    for name in built.configurations:
        assert len(re.findall(rf"^\| {name} \|", text, re.MULTILINE)) == 1
    assert "![speedup](figures/speedup.svg)\n" in text
    assert "- **broken**: failed: RuntimeError: out of memory \\[rank 0\\]" in text
    assert built.fingerprint in text and "`trainparity repro`" in text
