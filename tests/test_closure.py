"""Which files and distributions a program's imports reach, found without running them."""

import ast
import subprocess
import sys
from importlib.metadata import packages_distributions
from pathlib import Path

import numpy
import pytest

from trainparity.closure import closure_of, imports, modules, reach


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A user's project: a package with a helper, a lazy import, and a module that nothing imports."""
    files = {
        "mine/__init__.py": "",
        "mine/model.py": "import torch\nfrom .layers import Block\nfrom . import sizes\n",
        "mine/layers.py": "import json\n\ndef load():\n    from mine import late\n",
        "mine/late.py": "import importlib\nimportlib.import_module('plain')\n",
        "mine/sizes.py": "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import mine.unused\n",
        "mine/unused.py": "",
        "plain.py": "try:\n    import not_there_at_all\nexcept ImportError:\n    pass\n",
        "folder/inside.py": "WIDTH = 1\n",
        "mine/sizes.yaml": "width: 1\n",
        "mine/.hidden": "",
        "notes.txt": "no package's file\n",
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_it_holds_what_imports_reach_and_nothing_else(project: Path) -> None:
    found = closure_of(["mine.model"])
    assert set(found.files) == {
        "mine/__init__.py", "mine/model.py", "mine/layers.py", "mine/late.py", "mine/sizes.py", "plain.py",
        "mine/sizes.yaml",
    }  # fmt: skip
    assert set(found.distributions) == {"torch", "not_there_at_all"}
    assert found.distributions["not_there_at_all"] == "missing"


def test_a_package_without_init_is_followed(project: Path) -> None:
    (project / "mine/sizes.py").write_text("from folder.inside import WIDTH\n")
    assert "folder/inside.py" in closure_of(["mine.model"]).files


@pytest.mark.parametrize(
    ("file", "changes"),
    [
        ("mine/late.py", True),
        ("plain.py", True),
        ("mine/sizes.yaml", True),
        ("notes.txt", False),
        ("mine/unused.py", False),
        ("folder/inside.py", False),
    ],
)
def test_the_digest_changes_with_its_files_alone(project: Path, file: str, changes: bool) -> None:
    before = closure_of(["mine.model"]).digest
    (project / file).write_text("import os\nWIDTH = 2\n")
    assert (closure_of(["mine.model"]).digest != before) is changes


def test_an_import_that_comes_to_find_something_changes_the_digest(project: Path) -> None:
    before = closure_of(["mine.model"]).digest
    (project / "not_there_at_all.py").write_text("")
    assert closure_of(["mine.model"]).digest != before


def test_a_file_that_hides_a_standard_module_belongs_to_it(project: Path) -> None:
    (project / "mine/layers.py").write_text("import sys, json.decoder\nfrom concurrent import futures\n")
    before = closure_of(["mine.model"])
    for name in ("sys.py", "csv.py", "json/decoder.txt"):  # compiled into Python; not imported; no package
        (project / name).parent.mkdir(exist_ok=True)
        (project / name).write_text("")
    assert closure_of(["mine.model"]) == before
    (project / "json.py").write_text("import shared\n")
    (project / "concurrent").mkdir()
    (project / "concurrent/__init__.py").write_text("futures = 1\n")
    (project / "shared.py").write_text("")
    hidden = closure_of(["mine.model"]).files.keys() - before.files.keys()
    assert hidden == {"json.py", "shared.py", "concurrent/__init__.py"}
    assert reach.hashes_now(["json.py", "concurrent/__init__.py"]).keys() == {"json.py", "concurrent/__init__.py"}
    (project / "json.py").unlink()
    assert "json.py" not in reach.hashes_now(["json.py"])


def test_of_our_package_what_it_computes_with_counts_where_it_is_installed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "site-packages/ours").mkdir(parents=True)
    (tmp_path / "site-packages/ours/__init__.py").touch()
    monkeypatch.chdir(tmp_path / "site-packages")
    monkeypatch.setattr(reach, "_OURS", "ours")
    found = closure_of(["ours"])
    assert not found.files and found.distributions["numpy"] == numpy.__version__
    assert found.distributions.keys() == {"ours", "numpy", "pillow", "scikit-learn"}


def test_it_is_the_same_in_another_folder(project: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    here = closure_of(["mine.model", "plain"])
    there = tmp_path_factory.mktemp("there") / project.name
    project.rename(there)
    code = "from trainparity.closure import closure_of; print(closure_of(['mine.model', 'plain']).digest)"
    done = subprocess.run([sys.executable, "-c", code], cwd=there, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == here.digest


def test_a_module_with_a_syntax_error_is_left_to_who_imports_it(project: Path) -> None:
    (project / "mine/layers.py").write_text("def\n")
    assert "mine/layers.py" in closure_of(["mine.model"]).files


def test_nothing_is_imported(project: Path) -> None:
    (project / "mine/model.py").write_text("raise SystemExit('imported')\n")
    assert "mine/model.py" in closure_of(["mine.model"]).files


@pytest.mark.slow
def test_a_training_process_loads_no_file_of_ours_that_its_closure_lacks() -> None:
    """The closure is computed from source texts; the interpreter says what is really loaded."""
    code = """
import sys
import trainparity.training.worker, trainparity.strategies.ddp, tests.support.mlp
ours = ("trainparity", "tests", "examples")
own = {n for n, m in sys.modules.items() if n.split(".")[0] in ours and getattr(m, "__file__", None)}
from trainparity.closure import closure_of, reach
found = closure_of(["trainparity.training.worker", "trainparity.strategies.ddp", "tests.support.mlp"])
files = {n.replace(".", "/") for n in own}
known = {name.removesuffix(".py").removesuffix("/__init__") for name in found.files}
registries = {"trainparity/workloads/registry", "trainparity/strategies/registry"}
print(sorted(files - known - registries))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_statements_alone_tell_what_the_whole_tree_does() -> None:
    for path in Path(reach.__file__).parents[1].rglob("*.py"):
        whole = imports._executed(ast.parse(path.read_bytes()), expressions=True)
        assert set(imports.imported(path, "a.b")) == set(imports._names(whole, "a.b")), path


def test_a_call_inside_an_expression_is_seen(tmp_path: Path) -> None:
    file = tmp_path / "m.py"
    file.write_text("match 1:\n    case _:\n        x = [f(__import__('json')) for _ in ()]\n        import csv\n")
    assert set(imports.imported(file, "")) == {"json", "csv"}
    file.write_text("y = (lambda: importlib.ｉmport_module('html'))\n", encoding="utf-8")
    assert imports.imported(file, "") == ("html",)


def test_a_module_of_another_name_is_its_distributions() -> None:
    installed = packages_distributions()
    for top in ("yaml", "PIL", "sklearn", "torch", "_pytest", "dateutil"):
        assert modules._distribution(top) in {top, *installed[top]}
    assert modules._distribution("PIL") == "pillow" and modules._distribution("not_there") == "not_there"
