"""What stands for the code that a run is made by; a twin of other code measures no floor."""

import importlib
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest
import torch
from torch import nn

import trainparity
from trainparity.parity.compare import compare_folders
from trainparity.parity.recording import code
from trainparity.parity.recording.trace import Layout

RECIPE = """
# how the loss is made
def loss(made, step):
    return made.square().mean()
"""


@pytest.fixture
def recipe(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A module of the user's own."""
    path = tmp_path / "a_recipe_of_users.py"
    path.write_text(RECIPE)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    yield path
    sys.modules.pop(path.stem, None)


def loaded_anew(path: Path, text: str) -> ModuleType:
    path.write_text(text)
    sys.modules.pop(path.stem, None)
    importlib.invalidate_caches()
    return importlib.import_module(path.stem)


def train(folder: Path, recipe: ModuleType, twin: int = 0, parts: int = 1) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 3))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with trainparity.record(model, optimizer, folder, twin=twin):
        for step, batch in enumerate(torch.randn(6, 16, 6)):
            optimizer.zero_grad()
            for part in batch.chunk(parts):
                (recipe.loss(model(part), step) / parts).backward()
            optimizer.step()


def test_a_twin_of_edited_code_is_refused_and_one_of_an_edited_comment_is_not(recipe: Path, tmp_path: Path) -> None:
    right, wrong = tmp_path / "right", tmp_path / "wrong"
    for folder, text in (
        (right, RECIPE.replace("# how the loss is made", "# how the loss is made, in short\n\n# or not")),
        (wrong, RECIPE.replace("mean()", "mean() * (1 + 1e-6 * (step > 2))")),
    ):
        train(folder / "a", loaded_anew(recipe, RECIPE))
        train(folder / "b", loaded_anew(recipe, RECIPE), parts=2)
        for twin in (1, 2, 3):
            train(folder / "a", loaded_anew(recipe, text), twin)
    assert compare_folders(right / "a", right / "b").verdict == "equivalent"
    found = compare_folders(wrong / "a", wrong / "b")
    assert found.verdict == "cannot judge"
    assert "twin 1 ran other code, with another " in str(found.reason) and f"{recipe.name}: it is" in str(found.reason)


def test_of_runs_that_differ_the_edited_files_are_named(recipe: Path, tmp_path: Path) -> None:
    train(tmp_path / "a", loaded_anew(recipe, RECIPE))
    train(tmp_path / "again", loaded_anew(recipe, RECIPE))
    train(tmp_path / "b", loaded_anew(recipe, RECIPE.replace("square()", "abs()")))
    found = compare_folders(tmp_path / "a", tmp_path / "b")
    assert found.verdict == "different"
    assert [line for line in found.environment if "code: another" in line and recipe.name in line]
    assert not compare_folders(tmp_path / "a", tmp_path / "again").environment


def test_files_of_the_user_alone_are_looked_at(recipe: Path, tmp_path: Path) -> None:
    train(tmp_path / "a", loaded_anew(recipe, RECIPE))
    files = Layout.read(tmp_path / "a/trace.json").code
    assert [name for name in files if name.endswith(recipe.name)]
    assert not [name for name in files if "site-packages" in name or "/trainparity/" in name]
    assert not [name for name in files if name.endswith(("/os.py", "/dataclasses.py", "torch/__init__.py"))]
    assert not any(map(os.path.isabs, files))


def test_a_file_that_is_gone_or_made_by_a_program_stands_for_nothing(recipe: Path) -> None:
    loaded_anew(recipe, RECIPE)
    assert [name for name in code.loaded() if name.endswith(recipe.name)]
    recipe.write_text(f"{RECIPE}\nTABLE = {list(range(200_000))}\n")
    assert not [name for name in code.loaded() if name.endswith(recipe.name)]
    recipe.unlink()
    assert not [name for name in code.loaded() if name.endswith(recipe.name)]


class _StandIn(ModuleType):
    def __init__(self, name: str, file: object) -> None:
        super().__init__(name)
        vars(self).pop("__file__", None)
        vars(self)["_file"] = file

    def __getattr__(self, name: str) -> object:
        if name != "__file__":
            raise AttributeError(name)
        if isinstance(self._file, Exception):
            raise self._file
        return self._file


@pytest.mark.parametrize(
    "file", [ImportError("not installed"), RuntimeError("lazy"), [], "a\0b.py", None, Path("a.py")]
)
def test_stand_ins_of_other_packages_are_no_code(file: object, monkeypatch: pytest.MonkeyPatch) -> None:
    before = code.loaded()
    monkeypatch.setitem(sys.modules, "a_package_that_is_not_there", _StandIn("a_package_that_is_not_there", file))
    assert code.loaded() == before
