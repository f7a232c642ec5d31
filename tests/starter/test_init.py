"""`trainparity init`: what it writes, and what it leaves alone."""

import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import psutil
import pytest
import yaml

from trainparity import params, starter
from trainparity.cli.pipeline import order, reproduce, run_stages, train_one, unjudged
from trainparity.errors import UserError
from trainparity.exits import shell_code
from trainparity.launch.execution import status_of
from trainparity.ownership import OWNER, owned
from trainparity.records import layout
from trainparity.records.run import Status

ROOT = Path(__file__).parents[2]
FILES = {"params.yaml", "params.schema.json", "dvc.yaml", "workload.py", ".gitignore"}


def test_what_is_written_names_no_folder_of_this_repository(tmp_path: Path) -> None:
    assert {path.name for path in starter.write(tmp_path / "new", dvc=True, force=False)} == FILES
    text = "".join((tmp_path / "new" / name).read_text() for name in FILES)
    assert not [name for name in ("src/", "studies", "stages/", "tests", "examples", "benchmarks") if name in text]


def test_its_plots_are_those_of_this_repository(tmp_path: Path) -> None:
    """A wheel holds no `.dvc`: a project of one's own gets the templates that its dvc.yaml names."""
    starter.write(tmp_path, dvc=True, force=False)
    ours, theirs = (yaml.safe_load((folder / "dvc.yaml").read_text())["plots"] for folder in (ROOT, tmp_path))
    assert theirs == ours
    (tmp_path / ".dvc").mkdir()
    starter.write_templates(tmp_path / ".dvc")
    written = {path.name: path.read_text() for path in (tmp_path / ".dvc/plots").iterdir()}
    assert written == {path.name: path.read_text() for path in (ROOT / ".dvc/plots").iterdir()}
    assert {f"{plot['template']}.json" for each in theirs for plot in each.values()} <= set(written)
    (tmp_path / ".dvc/plots/by_pair.json").write_text("mine")
    starter.write_templates(tmp_path / ".dvc")
    assert (tmp_path / ".dvc/plots/by_pair.json").read_text() == "mine"


def test_nothing_that_is_there_is_overwritten_unless_asked(tmp_path: Path) -> None:
    (tmp_path / "params.yaml").write_text("mine")
    (tmp_path / ".gitignore").write_text("mine")
    with pytest.raises(UserError, match=r"params.yaml: there already; --force replaces them"):
        starter.write(tmp_path, dvc=True, force=False)
    assert {path.name for path in tmp_path.iterdir()} == {"params.yaml", ".gitignore"}
    starter.write(tmp_path, dvc=False, force=True)
    assert (tmp_path / "params.yaml").read_text() != "mine" == (tmp_path / ".gitignore").read_text()
    assert not (tmp_path / "dvc.yaml").exists()


def test_a_project_that_began_without_dvc_gets_its_pipeline_and_keeps_its_workload(tmp_path: Path) -> None:
    starter.write(tmp_path, dvc=False, force=False)
    (tmp_path / "workload.py").write_text("mine")
    assert starter.write(tmp_path, dvc=True, force=False) == [tmp_path / "dvc.yaml"]
    assert (tmp_path / "workload.py").read_text() == "mine"
    with pytest.raises(UserError, match=r"dvc.yaml: there already"):
        starter.write(tmp_path, dvc=True, force=False)


def test_a_new_project_tells_nothing_to_anybody(tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-m", "trainparity.cli", "init"], cwd=tmp_path, capture_output=True, check=True)
    assert "analytics = false" in (tmp_path / ".dvc/config").read_text()


def test_the_command_says_what_it_wrote(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "trainparity.cli", "init", "--no-dvc"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines()[0] == "wrote params.yaml"
    again = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (
        again.returncode == 2
        and again.stderr == "params.yaml, params.schema.json, workload.py: there already; --force replaces them\n"
    )


@pytest.mark.parametrize("text", ["", "stages: {}\n", "[]\n"])
def test_to_a_pipeline_without_stages_no_command_calls_all_up_to_date(
    text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    starter.write(tmp_path, dvc=True, force=False)
    Path("dvc.yaml").write_text(text)
    with pytest.raises(UserError, match=r"^dvc\.yaml: has no `stages`"):
        reproduce()
    command = [sys.executable, "-m", "trainparity.cli", "status"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (2, "") and done.stderr.startswith("dvc.yaml: has no `stages`")


def test_settings_that_dvc_can_not_read_are_named_before_it_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    starter.write(tmp_path, dvc=True, force=False)
    Path("params.yaml").write_text("[" * 100_000)
    with pytest.raises(UserError, match=r"^params\.yaml: nested too deeply to be read$"):
        reproduce()


def test_without_dvc_the_same_stages_run_in_the_same_order() -> None:
    pipeline = yaml.safe_load((Path(starter.__file__).parent / "dvc.yaml").read_text())["stages"]
    commands = [stage.get("do", stage)["cmd"].replace("${key}", "ddp") for stage in pipeline.values()]
    assert [*commands[:-1]] == [f"python -m trainparity.stages {' '.join(stage)}" for stage in order(["ddp"])]
    assert commands[-1].endswith("experiment")  # which only `dvc exp` needs


def test_without_dvc_a_stage_that_fails_is_the_last(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    starter.write(tmp_path, dvc=False, force=False)
    settings = tmp_path / "params.yaml"
    settings.write_text(settings.read_text().replace("workload:Classifier", "workload:Clasifier"))
    monkeypatch.chdir(tmp_path)
    assert run_stages(order(["ddp"])) == 2
    assert not (tmp_path / "runs").exists()


def test_a_file_that_hides_a_module_from_the_stages_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for hiding in ("yaml.py", "trainparity.py", "random.py"):
        (tmp_path / hiding).touch()
        with pytest.raises(UserError, match=f"^{hiding}: `import` finds this in place of the module"):
            run_stages([["validate"]])
        (tmp_path / hiding).unlink()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("dvc", "number", "everybody"),  # gets the signal, or the command alone: services do either
    [
        (True, signal.SIGINT, False),
        (False, signal.SIGHUP, True),
        pytest.param(False, signal.SIGTERM, False, marks=pytest.mark.study),
        pytest.param(True, signal.SIGTERM, True, marks=pytest.mark.study),
    ],
)
def test_a_stage_that_is_stopped_has_the_time_for_its_checkpoint(
    tmp_path: Path, dvc: bool, number: int, everybody: bool
) -> None:
    starter.write(tmp_path, dvc=dvc, force=False)
    if dvc:
        subprocess.run([sys.executable, "-m", "dvc", "init", "--quiet", "--no-scm"], cwd=tmp_path, check=True)
    settings, workload = tmp_path / "params.yaml", tmp_path / "workload.py"
    settings.write_text(settings.read_text().replace("checkpoint_every: 20", "checkpoint_every: 1000"))
    slow = (
        "import pathlib, time\n        if torch.are_deterministic_algorithms_enabled():  # it trains with the trace\n"
        "            time.sleep(0.3)\n            pathlib.Path('began').touch()\n        logits ="
    )
    workload.write_text(workload.read_text().replace("logits =", slow))
    command = [sys.executable, "-m", "trainparity.cli", "repro"]
    repro = subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    deadline = time.monotonic() + 120
    while not (tmp_path / "began").exists():
        assert repro.poll() is None and time.monotonic() < deadline
        time.sleep(0.05)
    stage = psutil.Process(repro.pid).children(recursive=True)
    for process in [*(stage if everybody else ()), repro]:  # which may hear last
        with suppress(psutil.NoSuchProcess):
            process.send_signal(number)
        time.sleep(0.2)
    _, errors = repro.communicate(timeout=60)
    assert shell_code(repro.returncode) == 128 + number, errors
    assert stage and not psutil.wait_procs(stage, timeout=10)[1]
    assert list((tmp_path / ".trainparity").rglob("checkpoints/run/state.json")), errors
    assert not list((tmp_path / "runs").rglob("status.json"))


def test_one_run_is_made_without_dvc_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    starter.write(tmp_path, dvc=False, force=False)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "workload.py").unlink()
    assert train_one("ddp", again=True) == 2
    assert "workload" in capfd.readouterr().err and not (tmp_path / ".dvc").exists()


@pytest.mark.parametrize("dvc", [False, True])
def test_a_second_repro_waits_for_the_first_and_says_so(tmp_path: Path, dvc: bool) -> None:
    starter.write(tmp_path, dvc=dvc, force=False)
    with owned(tmp_path / ".trainparity/pipeline"):
        second = subprocess.Popen(
            [sys.executable, "-m", "trainparity.cli", "repro"],
            cwd=tmp_path, stdout=subprocess.PIPE, text=True, env={k: v for k, v in os.environ.items() if k != OWNER},
        )  # fmt: skip
        assert second.stdout
        assert second.stdout.readline().startswith(f".trainparity/pipeline: waiting for process {os.getpid()} on ")
        second.kill()
        second.communicate()
    assert not (tmp_path / "runs").exists()


@pytest.fixture
def failed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> params.Params:
    """The settings of a project in the working directory, whose reference has failed."""
    starter.write(tmp_path, dvc=False, force=False)
    monkeypatch.chdir(tmp_path)
    settings = params.load(Path("params.yaml"))
    configuration = settings.reference_configuration("fp32")
    facts = {"status": "failed", "reason": "rank 0: ValueError: no"}
    status_of("reference-fp32", configuration, **facts).write(layout.status(Path("runs"), "reference-fp32"))
    return settings


def test_a_reference_that_failed_is_no_success(failed: params.Params, capsys: pytest.CaptureFixture[str]) -> None:
    assert unjudged(failed, ()) == unjudged(failed, ["compare"]) == 2
    assert capsys.readouterr().err.startswith("reference-fp32 failed: rank 0: ValueError: no; nothing could be judged")
    assert unjudged(failed, ["prepare"]) == 0
    for status in ("trained", "skipped"):
        path = layout.status(Path("runs"), "reference-fp32")
        Status.read(path).model_copy(update={"status": status}).write(path)
        assert unjudged(failed, ()) == 0
    assert not capsys.readouterr().err


@pytest.mark.slow
def test_a_repro_whose_reference_fails_writes_the_report_and_ends_with_2(tmp_path: Path) -> None:
    starter.write(tmp_path, dvc=False, force=False)
    settings, workload = tmp_path / "params.yaml", tmp_path / "workload.py"
    settings.write_text(
        settings.read_text().partition("configs:")[0] + "configs: {ddp: {strategy: ddp, world_size: 2}}\n"
    )
    workload.write_text(
        workload.read_text().replace("        logits =", "        raise ValueError('no')\n        logits =")
    )
    command = [sys.executable, "-m", "trainparity.cli", "repro"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 2, done
    assert done.stderr.splitlines()[-1].startswith("reference-fp32 failed: rank 0: ValueError: no (workload.py:")
    assert (tmp_path / "reports/summary.json").exists() and (tmp_path / "runs/state/ddp/status.json").exists()
