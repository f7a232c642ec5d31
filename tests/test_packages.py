"""`pip install trainparity` brings what its code imports, and what it leaves out is named where it is needed."""

import ast
import re
import subprocess
import sys
import tomllib
from functools import cache
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

from trainparity import extras
from trainparity.exits import DEFECT, exit_code

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
NOT_IMPORTED = {"setuptools", "dvc"}
"""Declared for torch's compiler, which imports it, and for the program of that name."""


def names(requirements: list[str]) -> set[str]:
    return {re.split(r"[\[<>=;~! ]", requirement, maxsplit=1)[0].lower() for requirement in requirements}


_distributions = cache(packages_distributions)


def of_module(module: str) -> set[str]:
    """Return the distributions that hold a top-level module, by their normalised names."""
    return {name.lower().replace("_", "-") for name in _distributions()[module]}


def imported() -> dict[str, set[str]]:
    """Return the top-level modules of others that the package imports at run time, each with the files that do."""
    found: dict[str, set[str]] = {}
    for path in (ROOT / "src").rglob("*.py"):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        checked = {
            inner
            for node in ast.walk(tree)
            if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
            for inner in ast.walk(node)
        }
        for node in ast.walk(tree):
            modules = (
                [alias.name for alias in node.names]
                if isinstance(node, ast.Import)
                else [node.module]
                if isinstance(node, ast.ImportFrom) and node.module
                else []
            )
            for module in modules if node not in checked else ():
                found.setdefault(module.partition(".")[0], set()).add(str(path.relative_to(ROOT)))
    ours = {"trainparity", "sitecustomize"}  # the second is whatever the user's environment has
    return {name: files for name, files in found.items() if name not in sys.stdlib_module_names | ours}


def test_every_import_is_declared_and_everything_declared_is_imported() -> None:
    core, declared = names(PROJECT["dependencies"]), set[str]()
    for module, files in imported().items():
        extra = extras.EXTRAS.get(module)
        group = names(PROJECT["optional-dependencies"][extra]) if extra else core
        assert of_module(module) & group, f"{sorted(files)} import {module}, which {extra or 'no extra'} declares"
        declared |= of_module(module) & group
    assert core - declared - NOT_IMPORTED == set()


def test_each_extra_brings_what_the_sentence_promises() -> None:
    for module, extra in extras.EXTRAS.items():
        assert of_module(module) & names(PROJECT["optional-dependencies"][extra]), module


def without_extras(code: str) -> subprocess.CompletedProcess[str]:
    """Run code where no package of an extra can be imported."""
    hidden = f"import sys\nfor name in {sorted(extras.EXTRAS)}: sys.modules[name] = None\n"
    return subprocess.run([sys.executable, "-c", hidden + code], cwd=ROOT, capture_output=True, text=True, check=False)


def test_the_core_imports_no_package_of_an_extra() -> None:
    modules = [
        "trainparity.attach.process", "trainparity.checking.run", "trainparity.cli", "trainparity.data.datasets",
        "trainparity.parity.compare", "trainparity.parity.curves", "trainparity.parity.record",
        "trainparity.report.answer", "trainparity.report.check", "trainparity.running.ab",
        "trainparity.training.worker",
    ]  # fmt: skip
    done = without_extras("import importlib\n" + "".join(f"importlib.import_module({name!r})\n" for name in modules))
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("command", "module", "extra"),
    [
        (["check", "resnet", "--against", "compiled"], "torchvision", "data"),
        (["controls", "--seeds", "1"], "sklearn", "data"),
        (["train", "cpu"], "dvc", "pipeline"),
        (["compare", "a", "b", "--html", "page.html"], "jinja2", "report"),
        (["repro"], "jinja2", "report"),
    ],
)
def test_a_missing_extra_is_named_in_one_sentence(command: list[str], module: str, extra: str) -> None:
    done = without_extras(f"sys.argv = {['trainparity', *command]}\nfrom trainparity import cli; cli.main()")
    assert done.returncode == 2 and done.stderr.count("\n") == 1, done.stderr
    assert f"{module}, which is not installed: pip install 'trainparity[{extra}]'" in done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("library", ["lightning", "transformers", "accelerate"])
def test_a_callback_without_its_library_names_the_extra(library: str) -> None:
    done = without_extras(f"import trainparity.{library}")
    assert f"which is not installed: pip install 'trainparity[{library}]'" in done.stderr.splitlines()[-1]


def test_another_missing_module_is_a_defect(capsys: pytest.CaptureFixture[str]) -> None:
    def fail() -> None:
        raise ModuleNotFoundError("No module named 'mine'", name="mine")

    assert exit_code(fail) == DEFECT
    assert "No module named 'mine'" in capsys.readouterr().err


def test_importing_the_package_imports_neither_torch_nor_pydantic() -> None:
    code = "import sys, trainparity; sys.exit(bool({'torch', 'pydantic'} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=False).returncode == 0


def test_recording_imports_nothing_heavy_beside_torch() -> None:
    """Dynamo takes 1.5 s to import and DTensor 0.4 s; a plain loop needs neither."""
    heavy = ["torch._dynamo", "torch.distributed.tensor", "sympy"]
    code = f"import sys, torch, trainparity; trainparity.record; sys.exit(bool(set({heavy}) & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=False).returncode == 0
