import importlib
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from pydantic import model_validator

from tests.support.mlp import Mlp, MlpOptions
from trainparity.validation import ParamsError
from trainparity.workloads import Batch, Workload, check, load, names, own_data, registry


@pytest.mark.parametrize("name", names())
def test_every_entry_loads_with_its_defaults(name: str) -> None:
    made = load(name, {})
    assert isinstance(made, Workload)
    module, _, options = registry.OPTIONS[name].partition(":")
    assert made.Options is getattr(importlib.import_module(module), options)


def test_options_are_checked_without_torch() -> None:
    code = (
        "import sys; from trainparity.workloads import check; check('resnet', {'depth': 50}); check('ddpm', {'x': 1})"
    )
    done = subprocess.run(
        [sys.executable, "-c", f"try:\n {code}\nfinally:\n print('torch' in sys.modules)"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.stdout == "False\n" and "workload.options.x" in done.stderr
    with pytest.raises(ParamsError, match="'resnett' is not one of"):
        check("resnett", {})


@pytest.mark.parametrize("ending", ["os._exit(0)", "sys.exit(0)", "raise SystemExit", "1 / 0", "if"])
def test_a_module_that_ends_the_process_is_a_mistake(
    ending: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its exit code 0 would be a verdict."""
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "ending.py").write_text(f"import os, sys\nprint(1)\n{ending}\n")
    with pytest.raises(ParamsError, match=r"(importing ending ended with|can't be imported)"):
        load("ending:Model", {})


@pytest.mark.parametrize("stream", ["stdout", "stderr"])
def test_a_module_that_closes_a_stream_is_a_mistake(stream: str, tmp_path: Path) -> None:
    """The answer could not be written: that is neither a defect of ours nor a verdict."""
    (tmp_path / "closing.py").write_text(f"import sys\nsys.{stream}.close()\n")
    params = yaml.safe_load(Path("params.yaml").read_text(encoding="utf-8"))
    params["workload"] = {"name": "closing:Model", "options": {}}
    (tmp_path / "params.yaml").write_text(yaml.safe_dump(params))
    done = subprocess.run(
        [sys.executable, "-m", "trainparity.cli", "validate"], capture_output=True, text=True, check=False,
        cwd=tmp_path, env={**os.environ, "PYTHONPATH": "."},
    )  # fmt: skip
    assert done.returncode == 2 and "Traceback" not in done.stderr, done
    assert stream == "stderr" or "importing closing has closed `sys.stdout`" in done.stderr


@pytest.mark.parametrize("name", ["./train.py:Model", "..:Model", ":Model", "train:", "train:a.b", "a b:Model"])
def test_a_name_that_is_no_modules_and_classs_is_told_what_is(name: str) -> None:
    with pytest.raises(ParamsError, match="names no module and class; allowed: "):
        load(name, {})


def test_toy_linear_says_what_it_trains_on() -> None:
    with pytest.raises(ParamsError, match=r"toy-linear trains on rows of numbers, .* the shape \[1, 8, 8\]"):
        load("toy-linear", {}).build_model({"images": torch.zeros(1, 1, 8, 8)})


class WithoutLoss(Workload):
    def build_model(self, sample: Batch) -> torch.nn.Module:
        return torch.nn.Linear(1, 1)


class WithoutDefaults(Mlp):
    def __init__(self) -> None:
        pass


class Raising(Mlp):
    def __init__(self, options: Any) -> None:
        raise ImportError("no such model zoo")


class Ending(Mlp):
    def __init__(self, options: Any) -> None:
        os._exit(0)  # which reads as a verdict


class RaisingOptions(MlpOptions):
    @model_validator(mode="before")
    @classmethod
    def check(cls, values: Any) -> Any:
        return values["hidden"] / 0 if values else 1 / 0


class WithRaisingOptions(Mlp):
    Options = RaisingOptions


class WithDictOptions(Mlp):
    Options = dict  # type: ignore[assignment]


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("WithoutLoss", "has no `loss`"),
        ("WithoutDefaults", "making .* ended with TypeError"),
        ("Raising", "making .* ended with ImportError: no such model zoo"),
        ("WithDictOptions", "its `Options` is no subclass of"),
        ("Ending", "making .* ended with SystemExit: 0"),
        ("WithRaisingOptions", "workload.options of .* ended with ZeroDivisionError"),
    ],
)
def test_a_class_that_can_not_be_made_is_a_mistake(name: str, message: str) -> None:
    with pytest.raises(ParamsError, match=message):
        load(f"{__name__}:{name}", {})


class Wordless(BaseException):
    """As pytest's Skipped and asyncio's CancelledError no Exception, and one that says nothing."""

    def __str__(self) -> str:
        raise RuntimeError("no words")


def _raise(error: BaseException) -> None:
    raise error


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (lambda: 1 / 0, "`data` of .* ended with ZeroDivisionError"),
        (lambda: sys.exit(0), "`data` of .* ended with SystemExit: 0"),
        (lambda: os._exit(0), "`data` of .* ended with SystemExit: 0"),
        (lambda: pytest.skip("no Exception"), "`data` of .* ended with Skipped: no Exception"),
        (lambda: _raise(Wordless()), r"`data` of .* ended with Wordless: \(its text can't be made\)"),
        (lambda: {"samples": torch.zeros(2)}, "a tensor is named 'samples'"),
        (lambda: {1: torch.zeros(2)}, "a tensor is named 1"),
        (lambda: {"inputs": torch.eye(2).to_sparse()}, "'inputs' is float32 on cpu, sparse_coo"),
        (lambda: {"inputs": torch.zeros(2, device="meta")}, "'inputs' is float32 on meta"),
        (lambda: 5, "`data` of .* returned int, not tensors by name"),
        (lambda: {"inputs": [1]}, "'inputs' is no tensor"),
        (lambda: {"inputs": torch.zeros(())}, "'inputs' is no tensor"),
        (lambda: {"inputs": torch.zeros(2), "targets": torch.zeros(3)}, "of unequal length"),
    ],
)
def test_data_that_is_none_is_a_mistake(data: Any, message: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Mlp, "data", lambda self: data())
    with pytest.raises(ParamsError, match=message):
        own_data(load("tests.support.mlp:Mlp", {}))


CHANGING = """
import os, sys
os.chdir("/")
sys.stdout = sys.stderr = None
if not (child := os.fork()):
    os._exit(3)  # its own is real
code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
from pydantic import model_validator

from tests.support.mlp import Mlp, MlpOptions
"""


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_module_that_changes_the_process_changes_it_for_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Relative paths of ours would lead elsewhere."""
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "changing.py").write_text(CHANGING)
    before = Path.cwd(), sys.stdout, sys.stderr, os._exit
    assert isinstance(load("changing:Mlp", {}), Workload)
    assert (Path.cwd(), sys.stdout, sys.stderr, os._exit) == before
    assert sys.modules["changing"].code == 3
