"""Colours that stand alone, without a word beside them, can be told apart by those who see fewer of them."""

import itertools
import re

import numpy as np
import pytest

from trainparity.report import templates

SCRIPT = (templates.FOLDER / "page.js").read_text(encoding="utf-8")
SEEN = {
    "by all": np.eye(3),
    "without red": [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]],
    "without green": [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.01182, 0.04294, 0.968881]],
    "without blue": [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602], [0.004733, 0.691367, 0.3039]],
}
"""Linear sRGB as it is seen (Machado, Oliveira and Fernandes 2009, severity 1)."""
WHITE = np.array([0.9505, 1.0, 1.089])
XYZ = np.array([[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]])


def lab(rgb: list[int], seen: str) -> np.ndarray:
    """Return CIELAB coordinates of a colour from 0 to 255."""
    part = np.array(rgb) / 255
    linear = np.where(part <= 0.04045, part / 12.92, ((part + 0.055) / 1.055) ** 2.4)
    xyz = XYZ @ np.clip(np.array(SEEN[seen]) @ linear, 0, 1) / WHITE
    x, y, z = np.where(xyz > 0.008856, np.cbrt(xyz), 7.787 * xyz + 16 / 116)
    return np.array([116 * y - 16, 500 * (x - y), 200 * (y - z)])


def apart(one: list[int], other: list[int], seen: str) -> float:
    return float(np.linalg.norm(lab(one, seen) - lab(other, seen)))


def lines() -> list[list[int]]:
    [text] = re.findall(r"const LINES = \[(.*)\];", SCRIPT)
    return [[int(h[i : i + 2], 16) for i in (0, 2, 4)] for h in re.findall(r'"#([0-9a-f]{6})"', text)]


def ramps() -> tuple[list[list[int]], list[list[int]]]:
    """Return both ends of the colours beyond the margin, and of those within."""
    found = re.findall(r"mix\(\[([\d, ]+)\], \[([\d, ]+)\]", SCRIPT)
    beyond, within = ([[int(n) for n in end.split(",")] for end in ends] for ends in found)
    return beyond, within


@pytest.mark.parametrize("seen", SEEN)
def test_lines_are_told_apart(seen: str) -> None:
    assert len(lines()) == 5
    assert min(apart(a, b, seen) for a, b in itertools.combinations(lines(), 2)) > 25


@pytest.mark.parametrize("seen", SEEN)
def test_good_bad_and_undecided_are_told_apart_although_symbol_and_word_say_it_too(seen: str) -> None:
    style = (templates.FOLDER / "page.css").read_text(encoding="utf-8")
    schemes = re.findall(r"--good: #(\w{6}); --bad: #(\w{6}); --warn: #(\w{6});", style)
    assert len(schemes) == 2  # light and dark
    for scheme in schemes:
        colours = [[int(h[i : i + 2], 16) for i in (0, 2, 4)] for h in scheme]
        assert min(apart(a, b, seen) for a, b in itertools.combinations(colours, 2)) > 15


def test_the_parts_of_a_step_have_colours_of_lines() -> None:
    style = (templates.FOLDER / "page.css").read_text(encoding="utf-8")
    parts = re.findall(r"\.part-\w+ \{ background: #([0-9a-f]{6})", style)
    chosen = [[int(h[i : i + 2], 16) for i in (0, 2, 4)] for h in parts]
    assert len(chosen) == 5 and all(colour in lines() for colour in chosen)
    assert len({*parts}) == 5


@pytest.mark.parametrize("seen", SEEN)
def test_no_cell_beyond_the_margin_looks_like_one_within(seen: str) -> None:
    beyond, within = (
        [[round(a + (b - a) * t) for a, b in zip(*ends, strict=True)] for t in np.linspace(0, 1, 20)]
        for ends in ramps()
    )
    assert min(apart(a, b, seen) for a in beyond for b in within) > 25
