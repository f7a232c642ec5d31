"""The house rules that no linter knows: imports point one way, and DVC sees every code change."""

import ast
import graphlib
from collections.abc import Sequence, Set
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "src/trainparity"
BELOW: dict[str, set[str]] = {
    "absent": set(),
    "extras": set(),
    "closure": {"hashing", "installed"},
    "environment_variables": set(),
    "errors": set(),
    "exits": {"errors", "extras", "printable", "stopping"},
    "hashing": set(),
    "hiding": set(),
    "installed": set(),
    "integers": set(),
    "lingering": set(),
    "observed": {"hashing"},
    "__main__": {"cli", "exits"},
    "ownership": {"errors"},
    "parentage": set(),
    "printable": set(),
    "scratch": set(),
    "whole_tensors": set(),
    "stopping": {"errors"},
    "records": {"absent", "errors"},
    "validation": {"absent", "errors"},
    "params": {"validation", "strategies"},
    "environment": {"errors", "extras", "params", "records"},
    "placement": {"environment", "params"},
    "data": {"params", "records", "printable"},
    "workloads": {"errors", "extras", "validation", "params"},
    "strategies": {"errors", "validation"},
    "measure": {"environment_variables", "extras", "params", "records"},
    "checkpoints": {"records", "whole_tensors"},
    "parity": {"errors", "installed", "integers", "params", "printable", "records", "checkpoints", "whole_tensors"},
    "training": {
        "validation", "params", "records", "environment", "data", "workloads", "strategies", "measure", "checkpoints",
        "errors", "integers", "lingering", "observed", "ownership", "placement", "stopping",
        # It writes what parity reads.
        "parity.recording",
    },
    "attach": {"hiding", "ownership", "records", "parity"},
    "bisection": {"records"},
    "second_opinion": {"records"},
    "running": {
        "bisection", "second_opinion", "records", "errors", "exits", "ownership", "scratch", "attach", "printable",
        "stopping",
    },
    "controls": {"parity", "records", "strategies", "environment", "parentage"},
    "claims": {"validation", "params", "records", "environment", "data", "workloads", "parity.recording"},
    "launch": {
        "extras", "validation", "params", "records", "environment", "environment_variables", "errors", "exits",
        "hashing", "lingering", "ownership", "scratch", "closure", "workloads", "strategies", "training", "placement",
        "hiding", "parentage", "stopping",
    },
    "pipeline": {
        "errors", "extras", "validation", "params", "records", "environment", "placement", "closure", "data",
        "workloads", "launch", "hashing", "observed", "ownership", "parentage",
        "claims.quantities", "claims.schema", "claims.weights",
    },
    "loading": {
        "ownership", "params", "records", "environment", "data", "workloads", "strategies", "measure", "training",
        "launch", "placement",
    },
    "checking": {
        "bisection", "errors", "second_opinion", "validation", "params", "records", "environment", "workloads",
        "launch", "pipeline", "parity",
    },
    "report": {"params", "records", "environment", "printable"},
    "api": {
        "integers", "ownership", "validation", "records", "workloads", "parity", "checking", "environment", "running",
        "scratch",
    },
    "lightning": {"attach", "extras", "parity"},
    "transformers": {"extras", "parity"},
    "accelerate": {"extras", "parity"},
    "testing": {"integers", "parity", "records", "scratch"},
    "pytest_plugin": {"testing", "records"},
    "exporting": {"errors", "records", "report"},
    "schemas": {"params", "claims", "strategies"},
    "starter": {"errors", "records", "schemas", "workloads"},
    "stages": {
        "validation", "params", "records", "environment", "workloads", "launch", "parity", "pipeline", "loading",
        "claims", "report", "errors", "exits", "lingering", "observed", "ownership", "parentage",
    },
    "cli": {
        "extras", "validation", "params", "records", "environment", "workloads", "launch", "parity", "controls",
        "report", "errors", "exits", "lingering", "parentage", "running", "pipeline", "starter", "api", "placement",
        "scratch", "exporting", "ownership", "printable", "hiding", "stopping",
    },
}  # fmt: skip


INSIDE_PARITY = ("recording", "noise", "steps", "causes", "")
"""The folders of `parity`, each of which may import those before it; its own files stand above them all."""


def imported(text: str) -> set[str]:
    """Return all names that a source text imports, anywhere in it, by their dotted names."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found |= {f"{node.module}.{alias.name}" for alias in node.names} | {node.module}
    return found


@cache
def imports(path: Path) -> frozenset[str]:
    """Return the modules of the package that a file imports."""
    return frozenset(n for n in imported(path.read_text(encoding="utf-8")) if n.startswith("trainparity."))


def source(module: str) -> Path | None:
    """Return the file of a dotted name; None if the name is no module."""
    path = ROOT / "src" / module.replace(".", "/")
    for candidate in (path.with_suffix(".py"), path / "__init__.py"):
        if candidate.exists():
            return candidate
    return None


def room(path: Path) -> str:
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


MODULES = sorted(p for p in PACKAGE.rglob("*.py") if p != PACKAGE / "__init__.py")


@pytest.mark.parametrize("path", MODULES, ids=lambda p: str(p.relative_to(PACKAGE)))
def test_imports_point_one_way(path: Path) -> None:
    here = room(path)
    for module in imports(path):
        inside = module.removeprefix("trainparity.")
        allowed = {here, "__version__", *BELOW[here]}
        assert any(inside == name or inside.startswith(f"{name}.") for name in allowed), f"{path} imports {module}"


def folder_of_parity(parts: Sequence[str]) -> int:
    """Return the place among these of a module of `parity`, by the parts of its name behind that."""
    return INSIDE_PARITY.index(parts[0] if parts and parts[0] in INSIDE_PARITY else "")


@pytest.mark.parametrize("path", [p for p in MODULES if room(p) == "parity"], ids=lambda p: str(p.relative_to(PACKAGE)))
def test_folders_of_parity_import_one_way(path: Path) -> None:
    here = folder_of_parity(path.relative_to(PACKAGE / "parity").parts)
    for module in imports(path):
        if module.startswith("trainparity.parity."):
            assert folder_of_parity(module.split(".")[2:]) <= here, f"{path} imports {module}"


def test_no_modules_import_each_other() -> None:
    """Not by way of others either, nor for types alone."""
    paths = {dotted(path): path for path in MODULES}
    taken = {name: modules_taken(path, paths.keys()) - {name} for name, path in paths.items()}
    graphlib.TopologicalSorter(taken).prepare()  # raises where there is a circle, and names it


def dotted(path: Path) -> str:
    return ".".join(path.relative_to(ROOT / "src").with_suffix("").parts).removesuffix(".__init__")


def modules_taken(path: Path, modules: Set[str]) -> set[str]:
    """Return the modules that a file imports: of a package what it takes from it, where that is a module, too."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            parts = {f"{node.module}.{alias.name}" for alias in node.names}
            found |= parts if parts <= modules else parts | {str(node.module)}
    return found & modules


def reachable(script: Path) -> set[Path]:
    """Return all files of the package that a script can come to import."""
    seen: set[Path] = set()
    waiting = [script]
    while waiting:
        for module in imports(waiting.pop()):
            parts = module.split(".")
            for length in range(2, len(parts) + 1):  # a package's __init__ runs too
                path = source(".".join(parts[:length]))
                if path and path not in seen:
                    seen.add(path)
                    waiting.append(path)
    return {path for path in seen if has_code(path)}


def has_code(path: Path) -> bool:
    """Tell whether a file is more than a docstring."""
    body = ast.parse(path.read_text(encoding="utf-8")).body
    return any(not (isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)) for node in body)


@pytest.mark.parametrize("path", [p for p in MODULES if room(p) == "report"], ids=lambda p: p.name)
def test_the_report_needs_no_torch(path: Path) -> None:
    assert not {name for name in imported(path.read_text(encoding="utf-8")) if name.split(".")[0] == "torch"}


@pytest.mark.parametrize("module", ["training/worker.py", "pipeline/prepare.py", "checking/run.py"])
def test_torchvision_is_imported_by_none_but_the_workloads_that_use_it(module: str) -> None:
    """It takes a second and a half, which every stage of every other workload would pay."""
    files = reachable(PACKAGE / module)
    assert PACKAGE / "workloads/base.py" in files
    assert [p for p in files if any(n.split(".")[0] == "torchvision" for n in imported(p.read_text()))] == []


def test_imports_are_absolute() -> None:
    """The rules above see no others."""
    for path in MODULES:
        tree = ast.parse(path.read_text(encoding="utf-8"))
        assert not [n for n in ast.walk(tree) if isinstance(n, ast.ImportFrom) and n.level], path


def unsafe(text: str) -> list[str]:
    """Return what in a source text can run code that came from data."""
    found = [name for name in imported(text) if name.split(".")[0] in ("pickle", "dill", "marshal", "shelve")]
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Call):
            call, keywords = ast.unparse(node.func), {k.arg: ast.unparse(k.value) for k in node.keywords}
            if call in ("eval", "exec", "os.system", "os.popen", "yaml.unsafe_load", "yaml.full_load"):
                found.append(call)
            if keywords.get("shell", "False") != "False":
                found.append("shell=True")
            if call == "torch.load" and keywords.get("weights_only") != "True":
                found.append(call)
    return found


@pytest.mark.parametrize("path", MODULES, ids=lambda p: str(p.relative_to(ROOT)))
def test_nothing_unsafe_is_used(path: Path) -> None:
    assert unsafe(path.read_text(encoding="utf-8")) == []


@pytest.mark.parametrize(
    "text",
    [
        "import pickle",
        "from pickle import loads",
        "import subprocess\nsubprocess.run('ls', shell=True)",
        "torch.load(path)",
        "torch.load(a, weights_only=True), torch.load(b)",
        "torch.load(path, weights_only=False)",
        "eval('1')",
        "exec('1')",
        "os.system('ls')",
    ],
)
def test_what_is_unsafe_would_be_found(text: str) -> None:
    assert unsafe(text)


def test_what_is_safe_is_left_alone() -> None:
    assert unsafe("model.eval(); re.compile('x'); torch.load(p, weights_only=True); run(a, shell=False)") == []


def test_the_pipelines_stay_short() -> None:
    """A stage's code and runs are computed: what is left of six pipelines is read on a screen each."""
    files = [ROOT / "dvc.yaml", *sorted((ROOT / "studies").glob("*/dvc.yaml"))]
    assert len(files) == 6
    assert sum(len(file.read_text(encoding="utf-8").splitlines()) for file in files) < 450
