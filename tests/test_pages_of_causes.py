"""docs/causes: a page for each cause, whose loops are trained and get the verdict that the page shows."""

import re
import runpy
import subprocess
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.support.scripts import torchrun
from trainparity import record
from trainparity.parity.causes import IDENTIFIERS
from trainparity.parity.compare import compare_folders
from trainparity.records.verdict import UNKNOWN, Verdict

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "docs/causes"
ON_RANKS = ("ranks-disagree",)
PLAIN = "plain"

Loops = dict[str, Any]


def page(name: str) -> str:
    path = FOLDER / f"{name}.md"
    assert path.exists(), f"{path.relative_to(ROOT)} is missing: CONTRIBUTING.md says what a page of a cause holds"
    return path.read_text(encoding="utf-8")


def loops(name: str) -> Loops:
    """Return what a page's code defines, on top of that of the index."""
    defined: Loops = {}
    for source in ("index", name):
        for code in re.findall(r"```python\n(.*?)```", page(source), re.DOTALL):
            exec(compile(code, f"docs/causes/{source}.md", "exec"), defined)
    return defined


def recorded(training: Callable[..., Any], folder: Path, twin: int = 0) -> Path:
    with ExitStack() as ending:
        training(lambda *of: ending.enter_context(record(*of, folder, interval=1, twin=twin)))
    return folder


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The reference that most pages compare with, and its twin."""
    return with_twin(loops("index")[PLAIN], tmp_path_factory.mktemp("runs") / "a")


def with_twin(training: Callable[..., Any], folder: Path) -> Path:
    recorded(training, folder, twin=1)
    return recorded(training, folder)


def shown(verdict: Verdict) -> str:
    """Return the two lines that a page shows of a verdict, without numbers, which rounding moves."""
    text = f"  cause: {verdict.cause}: {verdict.explanation}\n  to change: {verdict.advice}\n"
    for side, name in ((verdict.left, "runs/a"), (verdict.right, "runs/b")):
        text = text.replace(side, name)
    return without_numbers(text)


def without_numbers(text: str) -> str:
    return re.sub(r"\b\d[\d.,e+-]*\b", "#", text)


def test_the_pages_say_what_the_registry_and_the_results_do() -> None:
    for path, text in runpy.run_path(str(ROOT / "docs/computed.py"))["pages"]().items():
        assert path.read_text(encoding="utf-8") == text, f"{path.relative_to(ROOT)}: `make docs` writes it"


def test_every_cause_has_a_page_and_no_other_has() -> None:
    assert {path.stem for path in FOLDER.glob("*.md")} == {*IDENTIFIERS, UNKNOWN, "index"}
    assert all(page(cause).startswith(f"# `{cause}`\n") for cause in IDENTIFIERS)


@pytest.mark.filterwarnings("ignore:Detected call of `lr_scheduler.step:UserWarning")
@pytest.mark.parametrize("cause", [cause for cause in IDENTIFIERS if cause not in ON_RANKS])
def test_the_loop_before_has_the_fault_and_the_loop_after_has_not(cause: str, plain: Path, tmp_path: Path) -> None:
    defined = loops(cause)
    own = defined.get("reference")
    reference = with_twin(own, tmp_path / "a") if own else plain
    before = compare_folders(reference, recorded(defined["before"], tmp_path / "b"))
    assert (before.verdict, before.cause) == ("different", cause), before.reason
    assert shown(before) in without_numbers(page(cause))
    other = defined.get("reference_of_after")
    after = compare_folders(
        with_twin(other, tmp_path / "c") if other else reference, recorded(defined["after"], tmp_path / "d")
    )
    assert after.exit_code == 0, after


@pytest.mark.study
@pytest.mark.parametrize("cause", ON_RANKS)
def test_the_loops_on_two_ranks_do_too(cause: str, plain: Path, tmp_path: Path) -> None:
    script = [str(ROOT / "tests/support/page_on_ranks.py"), cause, str(tmp_path)]
    subprocess.run([*torchrun().split(), *script], cwd=ROOT, check=True)
    before, after = (compare_folders(plain, tmp_path / name) for name in ("before", "after"))
    assert (before.verdict, before.cause) == ("different", cause), before.reason
    assert shown(before) in without_numbers(page(cause))
    assert after.exit_code == 0, after
