"""The list of loops in `benchmarks/loops`: every script is there, and knows the variants that it is run with."""

import runpy
from pathlib import Path

import pytest

LOOPS = Path(__file__).parents[1] / "benchmarks" / "loops"
CASES = runpy.run_path(str(LOOPS / "cases.py"))["CASES"]


@pytest.mark.parametrize("key", CASES)
def test_a_script_knows_its_variants(key: str) -> None:
    name, pairs = CASES[key]
    text = (LOOPS / name).read_text(encoding="utf-8") + (LOOPS / "shape.py").read_text(encoding="utf-8")
    variants = {part for pair in pairs for whole in pair[:2] for part in whole.split("+")} - {"ref"}
    assert {variant for variant in variants if f'has("{variant}")' not in text} == set()


def test_every_script_is_run() -> None:
    scripts = {path.name for path in LOOPS.glob("*.py")} - {"cases.py", "shape.py"}
    assert scripts == {name for name, _ in CASES.values()}
