"""The house rules that no linter knows: imports point one way, and DVC sees every code change."""

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "src/trainparity"
BELOW: dict[str, set[str]] = {
    "closure": set(),
    "records": set(),
    "validation": set(),
    "params": {"validation"},
    "environment": {"params", "records"},
    "stage": {"validation", "params", "records"},
    "data": {"params", "records"},
    "workloads": {"validation", "params"},
    "strategies": {"params"},
    "measure": {"params", "records"},
    "checkpoints": {"records"},
    "parity": {"params", "records", "checkpoints"},
    "training": {
        "validation", "params", "records", "environment", "data", "workloads", "strategies", "measure", "checkpoints",
        # It writes what parity reads.
        "parity.recording",
    },
    "attach": {"records", "parity"},
    "run": {"records", "stage", "attach"},
    "controls": {"parity", "records", "strategies", "environment"},
    "claims": {"validation", "params", "records", "environment", "data", "workloads", "parity.recording"},
    "launch": {
        "validation", "params", "records", "environment", "stage", "data", "workloads", "training",
        "claims.quantities", "claims.schema", "claims.weights",
    },
    "loading": {"params", "records", "environment", "data", "workloads", "strategies", "measure", "training", "launch"},
    "check": {"validation", "params", "records", "environment", "workloads", "launch", "parity"},
    "report": {"params", "records", "environment"},
    "cli": {
        "validation", "params", "records", "environment", "workloads", "launch", "parity", "controls",
        "check", "report", "stage", "run",
    },
}  # fmt: skip


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
STAGES = sorted((ROOT / "stages").glob("*.py"))


@pytest.mark.parametrize("path", MODULES, ids=lambda p: str(p.relative_to(PACKAGE)))
def test_imports_point_one_way(path: Path) -> None:
    here = room(path)
    for module in imports(path):
        inside = module.removeprefix("trainparity.")
        allowed = {here, "__version__", *BELOW[here]}
        assert any(inside == name or inside.startswith(f"{name}.") for name in allowed), f"{path} imports {module}"


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


class Stage(NamedTuple):
    """One stage of one pipeline; its paths are relative to the pipeline's folder."""

    folder: Path
    name: str
    settings: dict[str, Any]

    @property
    def script(self) -> Path:
        return (self.folder / self.settings["cmd"].split()[1]).resolve()

    @property
    def deps(self) -> list[Path]:
        return [(self.folder / dep).resolve() for dep in self.settings["deps"]]

    def covers(self, path: Path) -> bool:
        return any(dep == path or dep in path.parents for dep in self.deps)


def stages() -> Iterator[Stage]:
    for path in [ROOT / "dvc.yaml", *sorted(ROOT.glob("studies/*/dvc.yaml"))]:
        for name, stage in yaml.safe_load(path.read_text())["stages"].items():
            yield Stage(path.parent, name, stage.get("do", stage))


STAGES_OF_PIPELINES = list(stages())


def identify(stage: Stage) -> str:
    return f"{stage.folder.name}-{stage.name}" if stage.folder != ROOT else stage.name


TRAINING = [
    stage
    for stage in STAGES_OF_PIPELINES
    if stage.name in ("reference", "train", "known-answer", "counterpart", "curves")
]


@pytest.mark.parametrize("stage", STAGES_OF_PIPELINES, ids=identify)
def test_a_stage_depends_on_all_code_that_it_runs(stage: Stage) -> None:
    assert stage.covers(stage.script)
    assert [str(p.relative_to(ROOT)) for p in sorted(reachable(stage.script)) if not stage.covers(p)] == []


@pytest.mark.parametrize("stage", TRAINING, ids=identify)
def test_training_depends_on_what_its_worker_processes_run(stage: Stage) -> None:
    assert [p for p in reachable(PACKAGE / "training/worker.py") if not stage.covers(p)] == []


@pytest.mark.parametrize("stage", [stage for stage in TRAINING if stage.name != "known-answer"], ids=identify)
def test_editing_the_report_or_the_verdict_never_retrains(stage: Stage) -> None:
    for untouched in ("report/page.py", "parity/verdict.py", "parity/floor.py", "parity/curves.py", "cli/parity.py"):
        assert (PACKAGE / untouched).exists() and not stage.covers(PACKAGE / untouched)


@pytest.mark.parametrize("stage", STAGES_OF_PIPELINES, ids=identify)
def test_every_dep_on_code_is_there(stage: Stage) -> None:
    made = tuple(stage.folder / part for part in ("runs", "reports", "data"))
    for dep in stage.deps:
        assert dep.exists() or any(part in dep.parents for part in made), dep


@pytest.mark.parametrize("path", [p for p in MODULES if room(p) == "report"], ids=lambda p: p.name)
def test_the_report_needs_no_torch(path: Path) -> None:
    assert not {name for name in imported(path.read_text(encoding="utf-8")) if name.split(".")[0] == "torch"}


@pytest.mark.parametrize("module", ["training/worker.py", "launch/prepare.py", "check/run.py"])
def test_torchvision_is_imported_by_none_but_the_workloads_that_use_it(module: str) -> None:
    """It takes a second and a half, which every stage of every other workload would pay."""
    files = reachable(PACKAGE / module)
    assert PACKAGE / "workloads/base.py" in files
    assert [p for p in files if any(n.split(".")[0] == "torchvision" for n in imported(p.read_text()))] == []


def test_imports_are_absolute() -> None:
    """The rules above see no others."""
    for path in [*MODULES, *STAGES]:
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


@pytest.mark.parametrize("path", [*MODULES, *STAGES], ids=lambda p: str(p.relative_to(ROOT)))
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
