"""The Recorder in plain loops, and what `trainparity compare` says of them."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import trainparity
from tests.support import warm
from trainparity.parity.compare import compare_folders
from trainparity.parity.recording.integrity import checksum
from trainparity.parity.recording.trace import Trace
from trainparity.records.base import RecordError

STEPS = 12


def train(
    folder: Path, *, parts: int = 1, scale: float = 1.0, steps: int = STEPS, lr: float = 0.05, **options: Any
) -> None:
    """Train a small network on fixed data; `scale` multiplies the loss, as a forgotten division does."""
    torch.manual_seed(0)
    data = torch.randn(16 * steps, 8, generator=torch.Generator().manual_seed(1))
    model = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=lr, momentum=0.9)
    with trainparity.record(model, optimizer, folder, **options) as recorder:
        for step in range(steps):
            optimizer.zero_grad()
            for part in data[16 * step : 16 * (step + 1)].chunk(parts):
                loss = model(part).square().sum() / 16 * scale
                loss.backward()
            optimizer.step()
            recorder.log(loss=loss)


def test_twins_are_found_beside_the_reference_and_calibrate_the_floor(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    train(tmp_path / "a")
    train(tmp_path / "b", parts=4)
    bound = compare_folders(tmp_path / "a", tmp_path / "b")
    assert (bound.verdict, bound.calibrated) == ("equivalent", False)
    for twin in (1, 2):
        train(tmp_path / "a", twin=twin)
    measured = compare_folders(tmp_path / "a", tmp_path / "b")
    assert (measured.verdict, measured.calibrated, measured.exit_code) == ("equivalent", True, 0)
    assert (measured.distance_over_floor or 0) > 0.1
    itself = compare_folders(tmp_path / "a", tmp_path / "b/../a")
    assert itself.verdict == "cannot judge" and "are one folder" in (itself.reason or "")
    copy = compare_folders(tmp_path / "a", shutil.copytree(tmp_path / "a", tmp_path / "c"))
    assert copy.verdict == "cannot judge" and "c is a copy of" in (copy.reason or "")
    twin_again = compare_folders(tmp_path / "a", tmp_path / "a/twins/1")
    assert twin_again.verdict == "cannot judge" and "is a twin of" in (twin_again.reason or "")
    monkeypatch.setattr("time.time", lambda: 1e9)  # as libraries that freeze the clock in tests do
    train(tmp_path / "a")
    train(tmp_path / "again")
    assert compare_folders(tmp_path / "a", tmp_path / "again").verdict == "bitwise"


def test_the_environment_makes_a_twin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRAINPARITY_TWIN", "3")
    train(tmp_path / "a")
    assert Trace.load(tmp_path / "a" / "twins" / "3").layout.twin == 3
    assert not (tmp_path / "a" / "trace.json").exists()
    monkeypatch.setenv("TRAINPARITY_TWIN", "first")
    with pytest.raises(ValueError, match="TRAINPARITY_TWIN is 'first'; it must be a twin's number"):
        train(tmp_path / "a")


def test_a_loop_may_change_its_working_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = nn.Linear(2, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path)
    with trainparity.record(model, optimizer, "a"):
        monkeypatch.chdir("elsewhere")
        model(torch.ones(1, 2)).sum().backward()
        optimizer.step()
    assert Trace.load(tmp_path / "a").layout.steps == [0] and not list(Path.cwd().iterdir())


@pytest.mark.parametrize("twins", [0, 2])
def test_a_fault_is_named_with_and_without_twins(tmp_path: Path, twins: int) -> None:
    for twin in range(twins + 1):
        train(tmp_path / "a", twin=twin)
    train(tmp_path / "b", parts=2, scale=2.0)
    found = compare_folders(tmp_path / "a", tmp_path / "b")
    assert (found.verdict, found.cause, found.step, found.exit_code) == ("different", "loss-normalisation", 0, 1)
    assert found.evidence["factor"] == pytest.approx(2, rel=1e-4)
    assert (found.tensor or "").startswith("gradient 2.")


def test_only_the_first_steps_and_every_so_many_are_traced(tmp_path: Path) -> None:
    train(tmp_path / "a", first=3, interval=5)
    trace = Trace.load(tmp_path / "a")
    assert trace.layout.steps == [0, 1, 2, 5, 10]
    assert all(len(array) == 5 for name, array in trace.arrays.items() if not name.startswith("end/"))


def test_windows_follow_the_reference(tmp_path: Path) -> None:
    """A hot learning rate parts right runs; windows that start from the reference's state keep them together."""
    settings = {"every": 4, "interval": 1, "steps": 40, "lr": 0.5}
    train(tmp_path / "a", **settings)
    for twin in (1, 2):
        train(tmp_path / "a", twin=twin, **settings)
    train(tmp_path / "b", parts=4, follow=tmp_path / "a", **settings)
    assert compare_folders(tmp_path / "a", tmp_path / "b").verdict == "equivalent"
    assert len(list((tmp_path / "a" / "windows").iterdir())) == 10
    traces = [Trace.load(tmp_path / name).arrays["start/sketch"] for name in "ab"]
    assert torch.equal(traces[0][8], traces[1][8])
    with pytest.raises(RecordError, match="recorded with every=4, it can't be followed with every=5"):
        train(tmp_path / "c", follow=tmp_path / "a", every=5)


def test_a_run_follows_its_own_folder_under_no_name(tmp_path: Path) -> None:
    train(tmp_path / "a", every=4)
    (tmp_path / "link").symlink_to(tmp_path / "a")
    for own in (tmp_path / "a", tmp_path / "link", tmp_path / "b" / ".." / "a"):
        with pytest.raises(ValueError, match="is the folder that this run is recorded into"):
            train(own, every=4, follow=tmp_path / "a")
    assert list((tmp_path / "a" / "windows").iterdir())


def test_a_difference_in_the_middle_of_a_followed_run_is_found_at_its_step(tmp_path: Path) -> None:
    settings = {"every": 4, "interval": 1}
    train(tmp_path / "a", **settings)
    train(tmp_path / "a", twin=1, **settings)
    torch.manual_seed(0)
    data = torch.randn(16 * STEPS, 8, generator=torch.Generator().manual_seed(1))
    model = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    with trainparity.record(model, optimizer, tmp_path / "b", follow=tmp_path / "a", **settings):
        for step in range(STEPS):
            optimizer.zero_grad()
            (model(data[16 * step : 16 * (step + 1)]).square().sum() / 16).backward()
            if step >= 6:
                optimizer.param_groups[0]["momentum"] = 0.8
            optimizer.step()
    found = compare_folders(tmp_path / "a", tmp_path / "b")
    assert (found.verdict, found.cause, found.step) == ("different", "optimizer-state", 6)
    assert found.tensor == "update 0.weight"
    assert found.evidence["options"] == ["momentum"]


def test_what_cannot_be_judged_says_why(tmp_path: Path) -> None:
    train(tmp_path / "a")
    train(tmp_path / "short", steps=5)
    torch.manual_seed(0)
    other = nn.Linear(8, 1)
    optimizer = torch.optim.SGD(other.parameters(), lr=0.1)
    with trainparity.record(other, optimizer, tmp_path / "other"):
        other(torch.ones(2, 8)).sum().backward()
        optimizer.step()
    reasons = {name: compare_folders(tmp_path / "a", tmp_path / name) for name in ("short", "other", "missing")}
    assert all((found.verdict, found.exit_code) == ("cannot judge", 2) for found in reasons.values())
    assert "steps: 8 traced to step 7 and 5 traced to step 4" in (reasons["short"].reason or "")
    assert "parameters of one run only" in (reasons["other"].reason or "")
    assert "no such folder" in (reasons["missing"].reason or "")
    no_twin = compare_folders(tmp_path / "a", tmp_path / "a", [tmp_path / "a"])
    assert "is no twin; record it with TRAINPARITY_TWIN=1" in (no_twin.reason or "")


def test_mistakes_in_arguments_are_named(tmp_path: Path) -> None:
    model = nn.Linear(2, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with pytest.raises(ValueError, match="interval is 0; it must be at least 1"):
        trainparity.record(model, optimizer, tmp_path, interval=0)
    with pytest.raises(ValueError, match="follow needs every="):
        trainparity.record(model, optimizer, tmp_path, follow=tmp_path)
    with pytest.raises(TypeError, match="the optimizer is a dict"):
        trainparity.record(model, {}, tmp_path)
    wrong: list[tuple[Any, dict[str, Any], str]] = [
        (None, {}, "the model is a NoneType"),
        (nn.Linear, {}, "the model is the class Linear"),
        (nn.Flatten(), {}, "has no parameters"),
        (model, {"interval": 1.5}, "interval is 1.5; it must be an integer"),
        (model, {"every": True}, "every is True; it must be an integer"),
        (model, {"sketch_size": 0}, "sketch_size is 0; it must be at least 1"),
        (model, {"settings": {"a": {"b": 1}}}, "settings has 'a'"),
        (model, {"settings": [1]}, "settings is a list"),
    ]
    for given, options, message in wrong:
        with pytest.raises((TypeError, ValueError), match=message):
            trainparity.record(given, optimizer, tmp_path, **options)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (lambda inputs, keywords: None, "samples gave a NoneType"),
        (lambda inputs, keywords: [1, 2], "samples gave a list"),
        (lambda inputs, keywords: inputs[0][:, 0], "samples gave a tensor of torch.float32"),
        (lambda inputs, keywords: inputs[0][:, 0] > 0, "samples gave a tensor of torch.bool"),
    ],
)
def test_samples_are_known_by_integers(given: Any, said: str, tmp_path: Path) -> None:
    """Numbers between 0 and 1 would all be sample 0, whatever the order."""
    model = nn.Linear(2, 1)
    with (
        trainparity.record(model, torch.optim.SGD(model.parameters(), lr=0.1), tmp_path, samples=given),
        pytest.raises(TypeError, match=said),
    ):
        model(torch.rand(3, 2))


@pytest.mark.parametrize("margin", [0.5, -1.0, float("nan"), float("inf"), 1e300])
def test_a_margin_that_would_call_anything_equivalent_is_refused(margin: float, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"margin is .*; it must be from 1 to 10,000"):
        compare_folders(tmp_path, tmp_path, margin=margin)


def test_a_reference_that_is_recorded_again_is_not_judged_by_the_twins_of_the_old_one(tmp_path: Path) -> None:
    """Twins of a loop that was edited meanwhile could hide a fault of the same size."""
    train(tmp_path / "a")
    for twin in (1, 2):
        train(tmp_path / "a", twin=twin, scale=1.05)
    train(tmp_path / "b", scale=1.01)
    train(tmp_path / "a")
    found = compare_folders(tmp_path / "a", tmp_path / "b")
    assert (found.verdict, found.calibrated) == ("different", False)


def test_of_two_recorders_of_one_folder_the_last_one_has_it(tmp_path: Path) -> None:
    """As in a notebook whose cell is run again; models that train beside each other have names."""
    model, data = nn.Linear(8, 1), torch.ones(4, 8)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def step() -> None:
        model(data).sum().backward()
        optimizer.step()

    first = trainparity.record(model, optimizer, tmp_path)
    step()
    with pytest.warns(UserWarning, match="a Recorder that was not closed after 1 step gives way"):
        second = trainparity.record(model, optimizer, tmp_path)
    step()
    step()
    second.close()
    first.close()
    assert Trace.load(tmp_path).layout.steps == [0, 1]
    with pytest.raises(ValueError, match="this Recorder is closed"), second:
        step()
    trainparity.record(model, optimizer, tmp_path)
    other = nn.Linear(8, 1)
    two = pytest.raises(ValueError, match="two Recorders at a time; give each model a name")
    with trainparity.record(other, torch.optim.SGD(other.parameters()), tmp_path), two:
        step()


def test_a_process_that_a_training_forks_does_not_write_its_trace(tmp_path: Path) -> None:
    model = nn.Linear(8, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    recorder = trainparity.record(model, optimizer, tmp_path / "a")
    model(torch.ones(4, 8)).sum().backward()
    optimizer.step()
    child = os.fork()
    if not child:
        recorder.close()  # as its exit functions do
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    assert not (tmp_path / "a/trace.json").exists()
    recorder.close()
    assert Trace.load(tmp_path / "a").layout.steps == [0]


@pytest.mark.parametrize("value", ["much", None, torch.ones(2), 1j])
def test_a_figure_that_is_no_number_is_named(value: Any, tmp_path: Path) -> None:
    model = nn.Linear(8, 1)
    with trainparity.record(model, torch.optim.SGD(model.parameters()), tmp_path) as recorder:
        recorder.log(loss=1, other=torch.ones(1))
        with pytest.raises(TypeError, match=r"log\(loss=...\) got a "):
            recorder.log(loss=value)


def test_the_loss_scaler_is_followed_through_skipped_steps(tmp_path: Path) -> None:
    torch.manual_seed(0)
    model, data = nn.Linear(8, 1), torch.randn(64, 8)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**127, growth_interval=1000)
    with trainparity.record(model, optimizer, tmp_path / "a", first=8) as recorder:
        for part in data.chunk(8):
            optimizer.zero_grad()
            scaler.scale(model(part).square().sum()).backward()
            scaler.step(optimizer)
            scaler.update()
        assert recorder.step == 8
    trace = Trace.load(tmp_path / "a")
    assert trace.layout.steps == list(range(8))
    skipped = ~trace.arrays["gradient_norm"].isfinite()
    assert skipped[0] and not skipped[-1]
    moved = (trace.arrays["weight/sketch"] - trace.arrays["start/sketch"]).flatten(1).any(1)
    assert torch.equal(moved, ~skipped)


def test_samples_can_be_named_by_an_argument_or_a_function(tmp_path: Path) -> None:
    class Indexed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = nn.Linear(4, 1)

        def forward(self, x: torch.Tensor, index: torch.Tensor) -> torch.Tensor:
            return self.inner(x)  # type: ignore[no-any-return]

    def run(name: str, samples: Any, order: list[int]) -> Trace:
        torch.manual_seed(0)
        model = Indexed()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        with trainparity.record(model, optimizer, tmp_path / name, samples=samples):
            model(torch.randn(4, 4), index=torch.tensor(order)).sum().backward()
            optimizer.step()
        return Trace.load(tmp_path / name)

    by_name = run("a", "index", [3, 1, 2, 0])
    by_function = run("b", lambda inputs, keywords: keywords["index"], [0, 1, 2, 3])
    assert by_name.arrays["sample_ids"].tolist() == [[1, 2, 3, 4]]
    assert torch.equal(by_name.arrays["samples"], by_function.arrays["samples"])
    assert by_name.layout.settings["samples"] == "identity"
    with pytest.raises(KeyError, match="got no such argument"):
        run("c", "ids", [0, 1, 2, 3])


def test_the_command_prints_the_cause_and_its_exit_code_says_the_verdict(tmp_path: Path) -> None:
    train(tmp_path / "a")
    train(tmp_path / "b", parts=2, scale=2.0)
    command = [warm.python(), "-m", "trainparity.cli", "compare", str(tmp_path / "a"), str(tmp_path / "b")]
    done = subprocess.run([*command, "--json", str(tmp_path / "out.json")], capture_output=True, text=True, check=False)
    assert done.returncode == 1, done.stderr
    assert "cause: loss-normalisation" in done.stdout and "uncalibrated" in done.stdout
    answer = json.loads((tmp_path / "out.json").read_text())
    assert {"verdict", "cause", "step", "tensor", "distance_over_floor", "evidence"} <= answer.keys()
    assert answer["verdict"] == "different"


IN_A_PROCESS = """
import multiprocessing, sys
from pathlib import Path
from torch import nn, ones, optim
import trainparity

def train():
    model = nn.Linear(4, 1)
    optimizer = optim.SGD(model.parameters(), lr=0.1)
    global recorder
    recorder = trainparity.record(model, optimizer, Path(sys.argv[1]))
    model(ones(2, 4)).sum().backward()
    optimizer.step()

process = multiprocessing.get_context("fork").Process(target=train)
process.start()
process.join()
"""


def test_a_process_of_multiprocessing_leaves_its_trace(tmp_path: Path) -> None:
    """It runs no exit function."""
    subprocess.run([warm.python(), "-c", IN_A_PROCESS, tmp_path / "a"], check=True)
    assert Trace.load(tmp_path / "a").layout.steps == [0]


def test_importing_the_package_does_not_import_torch() -> None:
    code = "import trainparity, sys; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.study
def test_correct_accumulation_over_2000_steps_is_equivalent_by_windows(tmp_path: Path) -> None:
    settings = {"every": 20, "interval": 10, "first": 0, "steps": 2000, "lr": 0.2}
    train(tmp_path / "a", **settings)
    train(tmp_path / "a", twin=1, **settings)
    train(tmp_path / "windowed", parts=2, follow=tmp_path / "a", **settings)
    train(tmp_path / "unbroken", parts=2, **settings)
    found = compare_folders(tmp_path / "a", tmp_path / "windowed")
    assert (found.verdict, found.calibrated, found.steps_compared) == ("equivalent", True, 200)
    # Without windows rounding alone has parted the two by far more.
    weights = {n: Trace.load(tmp_path / n).arrays["weight/sketch"][-1] for n in ("a", "windowed", "unbroken")}
    apart = {n: float((weights[n] - weights["a"]).norm() / weights["a"].norm()) for n in ("windowed", "unbroken")}
    assert apart["windowed"] < 1e-5 and apart["unbroken"] > 10 * apart["windowed"]


def closures(
    folder: Path,
    *,
    parts: int = 1,
    scale: float = 1.0,
    lr: float = 0.5,
    zeroed: bool = True,
    twin: int = 0,
    search: str | None = None,
) -> None:
    """Train with LBFGS, which evaluates its closure several times a step."""
    torch.manual_seed(0)
    data = torch.randn(24, 6, dtype=torch.float64)
    model = nn.Sequential(nn.Linear(6, 5), nn.Tanh(), nn.Linear(5, 1)).double()
    optimizer = torch.optim.LBFGS(model.parameters(), lr=lr, max_iter=4, line_search_fn=search)

    def closure() -> float:
        if zeroed:
            optimizer.zero_grad()
        total = 0.0
        for part in data.chunk(parts):
            loss = (model(part) - 1).square().sum() / 24 * scale
            loss.backward()
            total += loss.item()
        return total

    with trainparity.record(model, optimizer, folder, twin=twin):
        for _ in range(3):
            optimizer.step(closure)


def test_closures_are_recorded_by_their_first_evaluation(tmp_path: Path) -> None:
    for twin in range(3):
        closures(tmp_path / "a", twin=twin)
    closures(tmp_path / "b", parts=4)
    closures(tmp_path / "rate", lr=0.25)
    closures(tmp_path / "kept", zeroed=False)
    closures(tmp_path / "scaled", parts=4, scale=4.0)
    closures(tmp_path / "searched", search="strong_wolfe")
    found = {name: compare_folders(tmp_path / "a", tmp_path / name) for name in ("b", "rate", "kept", "scaled")}
    assert found["b"].verdict == "equivalent", found["b"]
    searched = {name: Trace.load(tmp_path / name).layout.choices["line_search_fn"] for name in ("a", "searched")}
    assert searched == {"a": "None", "searched": "strong_wolfe"}
    assert {name: v.cause for name, v in found.items()} == {
        "b": None, "rate": "learning-rate", "kept": "gradients-not-zeroed",
        "scaled": "loss-normalisation",
    }  # fmt: skip


def test_runs_of_other_lengths_are_judged_on_their_common_steps(tmp_path: Path) -> None:
    train(tmp_path / "a")
    train(tmp_path / "short", steps=5)
    train(tmp_path / "doubled", steps=5, scale=2.0)
    short, doubled = (compare_folders(tmp_path / "a", tmp_path / name) for name in ("short", "doubled"))
    assert (short.verdict, short.steps_compared) == ("cannot judge", 5)
    assert "5 common steps are bitwise" in str(short.reason)
    assert (doubled.verdict, doubled.cause) == ("different", "loss-normalisation")


class WithLoss(nn.Module):
    """Makes the loss itself, and returns what it is made of as a copy, under bf16 as Accelerate's wrapper does."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(8, 16), nn.Linear(16, 4)

    def forward(self, x: torch.Tensor, labels: torch.Tensor, bf16: bool) -> dict[str, torch.Tensor]:
        with torch.autocast("cpu", torch.bfloat16, enabled=bf16):
            logits = self.last(self.first(x).relu())
        return {"loss": nn.functional.cross_entropy(logits.float(), labels), "logits": logits.float().clone()}


def train_with_loss(folder: Path, *, bf16: bool, shift: int = 0, twin: int = 0) -> None:
    torch.manual_seed(0)
    model = WithLoss()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    with trainparity.record(model, optimizer, folder, twin=twin):
        for step in range(3):
            data = torch.randn(16, 8, generator=torch.Generator().manual_seed(step))
            optimizer.zero_grad()
            model(data, (data.argmax(1) + shift) % 4, bf16)["loss"].backward()
            optimizer.step()


@pytest.mark.parametrize("bf16", [False, True])
def test_a_loss_made_inside_of_the_model_is_judged_by_what_it_is_made_of(tmp_path: Path, bf16: bool) -> None:
    for twin in range(3):
        train_with_loss(tmp_path / "a", bf16=bf16, twin=twin)
    train_with_loss(tmp_path / "b", bf16=bf16, shift=1)
    assert compare_folders(tmp_path / "a", tmp_path / "b").cause == "loss-or-targets"


def test_autocast_inside_of_forward_is_what_the_model_computes_in(tmp_path: Path) -> None:
    for twin in range(2):
        train_with_loss(tmp_path / "a", bf16=True, twin=twin)
    layouts = [Trace.load(folder).layout for folder in (tmp_path / "a", tmp_path / "a" / "twins" / "1")]
    assert {layout.precision for layout in layouts} == {"bf16"}
    train_with_loss(tmp_path / "b", bf16=False)
    assert compare_folders(tmp_path / "b", tmp_path / "a").cause == "precision"


def test_a_twin_of_a_saturated_probability_is_a_probability(tmp_path: Path) -> None:
    """The loss refuses what is larger than one by a rounding."""
    for twin in range(3):
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(8, 4), nn.Sigmoid())
        optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
        with trainparity.record(model, optimizer, tmp_path, twin=twin):
            nn.functional.binary_cross_entropy(model(torch.full((16, 8), 200.0)), torch.zeros(16, 4)).backward()
            optimizer.step()
    assert Trace.load(tmp_path / "twins" / "2").layout.twin == 2


class Decaying(torch.optim.SGD):
    """Shortens its steps, and makes them as its parent class does."""

    def step(self, closure: Any = None) -> Any:
        """Make one step."""
        for group in self.param_groups:
            group["lr"] *= 0.9
        return super().step(closure)


def test_a_step_made_by_a_parent_class_with_instances_of_its_own_is_one_step(tmp_path: Path) -> None:
    """Torch calls the hooks of a step then for the inner call too."""
    torch.manual_seed(0)
    model = nn.Linear(4, 2)
    torch.optim.SGD(nn.Linear(1, 1).parameters(), lr=0.1)
    optimizer = Decaying(model.parameters(), lr=0.1)
    with trainparity.record(model, optimizer, tmp_path / "a", interval=1) as recorder:
        for _ in range(3):
            optimizer.zero_grad()
            model(torch.ones(3, 4)).sum().backward()
            optimizer.step()
    assert recorder.step == 3
    trace = Trace.load(tmp_path / "a")
    assert trace.layout.steps == [0, 1, 2] and bool(trace.arrays["gradient/norm"].any(1).all())
    assert trace.arrays["setting/lr"][:, 0].tolist() == pytest.approx([0.1, 0.09, 0.081])


class Listed(nn.Module):
    """Gives its parameters as a list, as optimizers take them too (MAML-Pytorch's `Learner`)."""

    def __init__(self) -> None:
        super().__init__()
        self.vars = nn.ParameterList([nn.Parameter(torch.ones(2, 4)), nn.Parameter(torch.zeros(2))])

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return nn.functional.linear(inputs, *self.vars)

    def parameters(self, recurse: bool = True) -> Any:
        return self.vars


def test_a_model_that_lists_its_parameters_is_recorded(tmp_path: Path) -> None:
    model = Listed()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with trainparity.record(model, optimizer, tmp_path):
        for batch in torch.randn(3, 8, 4):
            optimizer.zero_grad()
            model(batch).square().mean().backward()
            optimizer.step()
    assert Trace.load(tmp_path).layout.steps == [0, 1, 2]


def test_a_trace_that_an_earlier_version_wrote_is_not_damaged(tmp_path: Path) -> None:
    """It has none of the fields that are new since then."""
    model = nn.Linear(4, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with trainparity.record(model, optimizer, tmp_path):
        model(torch.ones(3, 4)).square().mean().backward()
        optimizer.step()
    path = tmp_path / "trace.json"
    written = json.loads(path.read_text())
    del written["optimizers"]
    path.write_text(json.dumps(written))
    with pytest.raises(RecordError, match="not as it was written"):
        Trace.load(tmp_path)
    written["checksum"] = checksum(written, (tmp_path / "trace.safetensors").read_bytes())
    path.write_text(json.dumps(written))
    assert Trace.load(tmp_path).layout.optimizers == {}
