"""The public API: names, laziness, and the same answers as the command line's."""

import inspect
import re
import subprocess
import sys
from pathlib import Path
from typing import Any, get_type_hints

import pytest

import trainparity
from tests.support import warm
from tests.support.scripts import PLAIN, write
from trainparity.errors import UserError
from trainparity.records.check import CheckReport
from trainparity.records.verdict import Verdict
from trainparity.report import markdown
from trainparity.running.command import Command

ROOT = Path(__file__).parents[1]


def test_every_public_name_is_there_and_documented() -> None:
    for name in trainparity.__all__:
        assert getattr(trainparity, name).__doc__, name
    assert set(trainparity.__all__) == set(trainparity._MODULES)
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        trainparity.nothing  # noqa: B018


def test_each_name_is_the_same_whatever_was_imported_before() -> None:
    """A subpackage of a function's name would take its place once it is imported."""
    names = [name for name in trainparity.__all__ if name.islower()]
    taken = [name for name in names if (ROOT / "src/trainparity" / name).exists()]
    assert names and not taken


@pytest.mark.parametrize("name", ["check", "compare", "record", "run"])
def test_every_argument_is_documented_and_typed(name: str) -> None:
    function = getattr(trainparity, name)
    arguments = set(get_type_hints(function)) - {"return"}
    said = inspect.getdoc(function) or ""  # Python 3.13 takes the indentation out of `__doc__` itself
    assert arguments and [argument for argument in arguments if f"\n    {argument}: " not in said] == []


def test_a_script_is_run_and_compared(tmp_path: Path) -> None:
    script = write(tmp_path, PLAIN)
    for name, rate in (("a", "1e-2"), ("b", "2e-2"), ("as a", "1e-2")):
        assert trainparity.run([warm.python(), str(script), "--lr", rate], tmp_path / name, twins=0, steps=3) == 0
    same = trainparity.compare(tmp_path / "a", tmp_path / "as a")
    other = trainparity.compare(tmp_path / "a", str(tmp_path / "b"))
    assert (same.verdict, same.exit_code) == ("bitwise", 0)
    assert (other.verdict, other.cause, other.exit_code) == ("different", "learning-rate", 1)
    assert same and not other  # so that `assert compare(a, b)` means what it says
    assert "<td>different</td>" in other._repr_html_() and "learning-rate" in other._repr_html_()
    assert trainparity.compare(tmp_path / "a", tmp_path / "none").verdict == "cannot judge"


def test_a_mistake_in_a_check_is_said() -> None:
    with pytest.raises(UserError, match="can't be imported"):
        trainparity.check("nowhere:Model", ["ddp:2"])


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"batch": 4096}, "--batch: 4096, but there are 1797 samples to train on; allowed: at most 1797"),
        ({"batch": 0}, "--batch: 0: input should be greater than or equal to 1"),
        (
            {"against": ["gradaccum:3", "gradaccum:31"], "batch": 32},
            "--batch: 32 can't be divided into world_size 1 x accumulation_steps 3 = 3 equal micro-batches "
            "(--against gradaccum:3); allowed: a multiple of 3",
        ),
        ({"options": {"depth": 2}}, "--options: depth: unknown key: 'depth' is not one of hidden, "),
        ({"dataset": "{name: fak}"}, "--dataset: name: 'fak' is not one of digits, "),
        ({"optimizer": "{name: adam, lr: -1.0}"}, "--optimizer: lr: -1.0: input should be greater than 0"),
    ],
)
def test_a_mistake_in_a_check_is_named_by_what_was_typed(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=f"^{re.escape(message)}"):
        trainparity.check("tests.support.mlp:Mlp", **{"against": "gradaccum:2"} | settings)


class Elsewhere:
    """A class that other processes could import; `Inside` they could not."""

    class Inside:
        pass


Shown = type("Shown", (), {"__module__": "__main__"})


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((None, ["ddp:2"]), "the workload is None; give a class"),
        ((Elsewhere.Inside, ["ddp:2"]), "Elsewhere.Inside is defined inside of a function or class"),
        ((Shown, ["ddp:2"]), "Shown is defined in a notebook, or in the script itself"),
        ((Elsewhere, [2]), "--against: 2 is no text"),
        ((Elsewhere, "dpp:2"), "--against dpp:2: 'dpp' is not one of"),
        ((Elsewhere, "ddp:2"), "is no subclass of"),
    ],
)
def test_what_a_check_is_given_is_checked(arguments: Any, message: str) -> None:
    with pytest.raises(UserError, match=message):
        trainparity.check(*arguments)


def test_what_a_run_is_given_is_checked(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="is no command"):
        trainparity.run([], tmp_path)
    for option in ({"twins": -1}, {"steps": -1}, {"interval": 0}):
        with pytest.raises(ValueError, match="it must be at least"):
            trainparity.run("true", tmp_path, **option)
    with pytest.raises(TypeError, match="comes behind the command"):
        trainparity.run(str(tmp_path), ["true"])  # type: ignore[arg-type]
    assert Command.of([Path("a b"), "c"]).arguments == ("a b", "c")


def test_no_text_of_a_verdict_is_markup() -> None:
    text = "a|b <script> *c* `d`"
    verdict = Verdict(left=text, right="b", verdict="different", reason=text, cause=text, margin=16)
    assert "<script>" not in verdict._repr_html_()
    assert "steps" not in verdict._repr_html_()
    table = markdown.verdict(verdict)
    assert table.splitlines()[0].count("|") == table.splitlines()[2].replace("\\|", "").count("|")
    assert "<script>" not in table.replace("\\<script\\>", "")


def test_a_checks_markdown_has_a_row_a_candidate() -> None:
    ends = {
        "ddp-2": Verdict(left="reference", right="ddp-2", verdict="equivalent", distance_over_floor=1.0, margin=16),
        "dp": Verdict(left="reference", right="dp", verdict="skipped", reason="no GPU", margin=16),
    }
    text = markdown.check(CheckReport(workload="mine:Model", margin=16, results=ends))
    assert text.splitlines()[2:5] == ["| ddp-2 | equivalent | 1 | – | – |", "| dp | skipped | – | – | – |", ""]
    assert "- **dp**: skipped: no GPU" in text


def test_importing_names_costs_no_torch_until_they_are_used() -> None:
    code = "import sys, trainparity; trainparity.Verdict; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
