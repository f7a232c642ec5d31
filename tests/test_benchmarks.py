"""The benchmarks that `make bench` runs, each at a tiny size, and the page that they make."""

import importlib
import json
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "benchmarks"
TINY: dict[str, dict[str, Any]] = {
    "loading": {"turns": 6, "batches": 3, "steps": 6, "workers": 0, "batch": 4},
    "tanhexp": {"steps": 6, "elements": 64, "compiled": False},
    "precision": {"steps": 6, "width": 16, "batch": 2},
}
"""Those of one process."""
SEVERAL: dict[str, dict[str, Any]] = {
    "ddp": {"steps": 6, "width": 8, "channels": 8, "batch": 4},
    "growth": {"largest": 10**6, "ranks": 2, "runs": 4},
    "startup": {"turns": 6, "check": False},
}
"""Those that start processes, which takes longer."""

Load = Callable[[str], ModuleType]


@pytest.fixture
def module(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Load]:
    """Import a benchmark as a script would; it writes into the test's folder."""
    monkeypatch.syspath_prepend(str(FOLDER))
    before = set(sys.modules)
    monkeypatch.setattr(importlib.import_module("results_file"), "RESULTS", tmp_path)
    threads = torch.get_num_threads()
    yield importlib.import_module
    torch.set_num_threads(threads)
    for name in set(sys.modules) - before:
        if (FOLDER / f"{name}.py").exists():
            del sys.modules[name]


@pytest.mark.slow
@pytest.mark.parametrize("name", [*TINY, *(pytest.param(name, marks=pytest.mark.study) for name in SEVERAL)])
def test_a_benchmark_writes_its_figures_and_targets(name: str, module: Load, tmp_path: Path) -> None:
    module(name).main(**(TINY | SEVERAL)[name])
    [path] = tmp_path.glob("*.json")
    found = json.loads(path.read_text())
    assert found["benchmark"] == name and found["targets"]
    for target in found["targets"]:
        ratio, low, high = target["found"]
        assert low <= ratio <= high and len(target["name"]) <= 36
        assert (target["at_most"] is None) != (target["at_least"] is None)


def test_the_page_tells_what_each_machine_reaches_and_what_limits_the_rest(module: Load, tmp_path: Path) -> None:
    pairs, results_file, page = map(module, ("pairs", "results_file", "page"))
    figure = {"what": "a over b", "limited_by": "the disk"}
    targets = [
        pairs.Target(name="fast", found=pairs.Ratio(2.5, 2.2, 3.0), at_least=2, **figure),
        pairs.Target(name="slow", found=pairs.Ratio(0.9, 0.8, 1.0), at_most=0.6, **figure),
        pairs.Target(name="counted", found=pairs.exactly(0.0), at_most=1e-5, **figure),
    ]
    path = results_file.save("thing", {}, targets)
    facts = json.loads(path.read_text())
    here, other = facts["device"], "Another(R) Machine"
    facts |= {"device": other, "targets": [targets[0].record() | {"found": [1.5, 1.4, 1.6]}]}
    (tmp_path / "thing-another.json").write_text(json.dumps(facts))
    page.main()
    text = (tmp_path / "README.md").read_text()
    first, second = sorted([here, other])
    assert f"| target | what | wanted | {first} | {second} |" in text
    rows = re.findall(r"\| (\w+) \| a over b \| (.*?) \| (.*?) \| (.*?) \|", text)
    assert [(name, wanted, *(cells if here == first else cells[::-1])) for name, wanted, *cells in rows] == [
        ("fast", "≥ 2", "2.50 (2.20 to 3)", "**missed** 1.50 (1.40 to 1.60)"),
        ("slow", "≤ 0.600", "**missed** 0.900 (0.800 to 1)", ""),
        ("counted", "≤ 1.0e-5", "0", ""),
    ]
    missed = re.findall(r"- \*\*(\w+)\*\*, (.+): the disk\.", text)
    assert sorted(missed) == sorted([("slow", here), ("fast", other)])
    drawn = {
        device: re.findall(r'fill="#1d2327">(\w+)<', (tmp_path / name).read_text())
        for device, name in re.findall(r"is reached, (.+)\]\((.+?)\)", text)
    }
    assert drawn == {here: ["fast", "slow", "counted"], other: ["fast"]}


def test_figures_of_this_machine_stay_where_versions_and_method_are_the_same(module: Load) -> None:
    results_file = module("results_file")
    path = results_file.save("thing", {"found": {"old": {"ms": 1.0}, "new": {"ms": 2.0, "busy_ms": 1.0}}})
    kept = results_file.measured_before("thing", "found", "busy_ms")
    assert {name: (one["ms"], one["date"][:2]) for name, one in kept.items()} == {"new": (2.0, "20")}
    path.write_text(path.read_text().replace('"fingerprint": "', '"fingerprint": "other'))
    assert results_file.measured_before("thing", "found", "busy_ms") == {}


def test_the_page_shows_the_pipeline_that_ran_on_a_gpu(module: Load, tmp_path: Path) -> None:
    page = module("page")
    assert page.on_a_gpu(tmp_path) == ""
    (tmp_path / "gpu-summary.json").write_bytes((FOLDER / "results/gpu-summary.json").read_bytes())
    assert re.search(r"\n\| cuda-single \| cuda \| bitwise \|", page.on_a_gpu(tmp_path))


def test_in_turns_everyone_is_first_as_often(module: Load) -> None:
    order: list[str] = []
    times = module("pairs").take_turns([lambda: order.append("a"), lambda: order.append("b")], steps=4, warm_up=2)
    assert "".join(order) == "baabbaabbaab" and [len(each) for each in times] == [4, 4]


def test_make_bench_runs_what_is_there() -> None:
    [recipe] = re.findall(r"^bench:.*\n((?:\t.*\n)+)", (ROOT / "Makefile").read_text(), re.MULTILINE)
    named = re.findall(r"benchmarks/(\w+)\.py", recipe)
    assert named[-1] == "page" and {*TINY, *SEVERAL} < {*named}
    assert [name for name in named if not (FOLDER / f"{name}.py").exists()] == []
