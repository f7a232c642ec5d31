import inspect
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest
import typer.main

from tests.support import report_tree, synthetic
from trainparity import cli
from trainparity.cli import answers
from trainparity.params import load
from trainparity.pipeline.schedule import Seconds
from trainparity.report import artifacts, summary

ROOT = Path(__file__).parents[1]


class Done(NamedTuple):
    """What a command came to."""

    returncode: int | str | None
    stdout: str
    stderr: str


Command = Callable[..., Done]


@pytest.fixture
def trainparity(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Command:
    """The command line in this process, in the project's folder or another, without a terminal."""

    def run(*arguments: str, folder: Path = ROOT) -> Done:
        monkeypatch.chdir(folder)
        monkeypatch.setattr(sys, "argv", ["trainparity", *arguments])
        with pytest.raises(SystemExit) as ended:
            cli.main()
        return Done(ended.value.code, *capsys.readouterr())

    return run


def test_what_is_printed_meanwhile_is_no_part_of_an_answer(capfd: pytest.CaptureFixture[str]) -> None:
    """As by a user's workload, in this process and in ranks."""
    for paths, out, err in (((answers.STDOUT,), "{}\n", "1\n2\n"), ((None, Path("a")), "1\n2\n{}\n", "")):
        with answers.kept_apart(*paths):
            print(1, flush=True)
            subprocess.run([sys.executable, "-c", "print(2)"], check=True)
        answers.give(paths[0], lambda: "{}\n", None, str, lambda: print("{}"))
        assert capfd.readouterr() == (out, err)


@pytest.mark.parametrize("option", ["--json", "--markdown", "--html"])
def test_where_an_answer_can_not_be_written_the_terminal_has_it(
    option: str, trainparity: Command, tmp_path: Path
) -> None:
    """As on a full disk, which is named."""
    synthetic.trace().save(tmp_path / "a")
    synthetic.trace(weights=(2.0,)).save(tmp_path / "b")
    done = trainparity("compare", f"{tmp_path}/a", f"{tmp_path}/b", option, "/dev/full")
    assert done.returncode == 2 and done.stderr == "/dev/full: No space left on device\n"
    assert "cause: loss-normalisation" in done.stdout
    other = trainparity("compare", f"{tmp_path}/a", f"{tmp_path}/b", "--json", "/dev/full", "--markdown", "-")
    assert other.returncode == 2 and "loss-normalisation" in other.stdout


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--json", "{0}/a", "--html", "{0}/./a"), "--json and --html both go to {0}/a: give each a place of its own"),
        (("--json", "-", "--markdown", "-"), "--json and --markdown both go to -: give each a place of its own"),
        (("--html", "-"), "--html -: a page is not for the terminal; name a file"),
        (("--markdown", "{0}/file/a"), "--markdown {0}/file/a: {0}/file is no folder"),
    ],
)
def test_a_place_where_no_answer_can_go_is_said_before_any_work(
    trainparity: Command, options: tuple[str, ...], said: str, tmp_path: Path
) -> None:
    (tmp_path / "file").touch()
    done = trainparity("check", "nowhere:Model", "--against", "ddp:2", *(each.format(tmp_path) for each in options))
    assert done == (2, "", said.format(tmp_path) + "\n")
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


@pytest.mark.parametrize(
    ("command", "said"),
    [
        (
            "compare {0}/a {0}/b --json {0}/a/trace.json",
            "--json {0}/a/trace.json: is there and lies in {0}/a, which is read",
        ),
        (
            "compare {0}/b {0}/a --floor {0}/c --html {0}/c/trace.json",
            "--html {0}/c/trace.json: is there and lies in {0}/c, which is read",
        ),
        ("doctor {0}/link --json {0}/a/trace.json", "--json {0}/a/trace.json: is {0}/link, which is read"),
    ],
)
def test_an_answer_does_not_replace_what_is_read(command: str, said: str, trainparity: Command, tmp_path: Path) -> None:
    for name in "abc":
        (tmp_path / name).mkdir()
        (tmp_path / name / "trace.json").write_text("mine")
    (tmp_path / "link").symlink_to("a/trace.json")
    done = trainparity(*command.format(tmp_path).split())
    assert done == (2, "", f"{said.format(tmp_path)}; name another file\n")
    assert (tmp_path / "a/trace.json").read_text() == "mine"


def test_an_answer_may_lie_beside_what_is_read(trainparity: Command, tmp_path: Path) -> None:
    done = trainparity("compare", ".", "b", "--json", "answer.json", "--html", "page.html", folder=tmp_path)
    assert done.returncode == 2 and "which is read" not in done.stderr + done.stdout


@pytest.mark.parametrize(
    "command",
    [
        "show {0}/nowhere --markdown {0}/README.md",
        "doctor {0}/nowhere.yaml --json {0}/README.md",
        "check nowhere:Model --against ddp:2 --html {0}/README.md",
        "curves {0} {0} --against {0} --json {0}/../README.md",
        "ab one --markdown {0}/README.md",
    ],
)
def test_a_call_that_is_a_mistake_removes_no_file(command: str, trainparity: Command, tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    for place in (tmp_path, folder):
        (place / "README.md").write_text("mine")
    assert trainparity(*command.format(folder).split(), folder=tmp_path).returncode == 2
    assert (tmp_path / "README.md").exists() and (folder / "README.md").exists()


def test_of_a_work_that_fails_no_earlier_answer_stays(trainparity: Command, tmp_path: Path) -> None:
    (tmp_path / "answer.json").write_text("earlier")
    done = trainparity("ab", "--json", "answer.json", "true", "true", folder=tmp_path)
    assert done.returncode == 2 and "no optimizer step was recorded" in done.stderr
    assert not (tmp_path / "answer.json").exists()


def test_each_command_removes_earlier_answers_when_its_work_begins() -> None:
    """What else each does then is its own; `controls` is interrupted in tests/test_exits.py."""
    commands = typer.main.get_command(cli.app).commands  # type: ignore[attr-defined]
    works = [one.callback.__wrapped__ for one in commands.values() if any(p.name == "json_path" for p in one.params)]
    assert len(works) > 8 and all("answers.remove_earlier(" in inspect.getsource(work) for work in works)


@pytest.mark.parametrize(
    ("command", "said"),
    [
        (("controls", "--json", "{0}"), "--json {0}: is a folder; name a file"),
        (("studies", "--save", "{0}/file/a"), "--save {0}/file/a: {0}/file is no folder"),
    ],
)
def test_nor_is_a_place_of_controls_or_studies_found_out_at_their_end(
    trainparity: Command, command: tuple[str, ...], said: str, tmp_path: Path
) -> None:
    (tmp_path / "file").touch()
    done = trainparity(*(each.format(tmp_path) for each in command))
    assert done == (2, "", said.format(tmp_path) + "\n")


def test_what_is_no_shells_completion_is_a_mistake(trainparity: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("_TRAINPARITY_COMPLETE", "foo")
    done = trainparity("show")
    assert done.returncode == 2 and "$_TRAINPARITY_COMPLETE is 'foo'" in done.stderr


def test_doctor_says_what_runs_and_why_the_rest_does_not(trainparity: Command) -> None:
    done = trainparity("doctor", "--json", "-")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)["configurations"]
    assert found["cpu"]["runs"] is True
    table = trainparity("doctor").stdout
    for name, facts in found.items():
        assert name in table
        if not facts["runs"]:
            assert facts["reason"] in table and f"{name}:   remedy: {facts['remedy']}" in table


def test_doctor_needs_no_project(trainparity: Command, tmp_path: Path) -> None:
    """It is what somebody asks first who has just installed the tool."""
    done = trainparity("doctor", folder=tmp_path)
    assert (done.returncode, done.stderr) == (0, "") and " ddp " in done.stdout
    assert done.stdout.endswith("no params.yaml: those of `trainparity init`.\n")
    missing = "params.yaml: no such file; `trainparity init` writes one\n"
    assert trainparity("doctor", "params.yaml", folder=tmp_path) == (2, "", missing)


@pytest.mark.parametrize("command", ["status", "show", "validate", "repro"])
def test_inside_of_a_projects_folder_the_projects_own_is_named(
    trainparity: Command, command: str, tmp_path: Path
) -> None:
    inside = tmp_path / "src/models"
    (tmp_path / "reports").mkdir()
    inside.mkdir(parents=True)
    for name in ("params.yaml", "reports/summary.json"):
        (tmp_path / name).touch()
    done = trainparity(command, folder=inside)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.endswith(f": not in this folder, but in {tmp_path}: go there first\n")


def test_doctors_table_as_markdown_and_json_is_in_place_of_the_terminals(trainparity: Command, tmp_path: Path) -> None:
    both = trainparity("doctor", "--json", str(tmp_path / "a.json"), "--markdown", "-")
    found = json.loads((tmp_path / "a.json").read_text())["configurations"]
    rows = [line for line in both.stdout.splitlines() if line.startswith("| ")]
    assert len(rows) == 2 + len(found) and rows[0] == "| configuration | here | device |"
    assert [row.split(" | ")[0].removeprefix("| ") for row in rows[2:]] == [*found]


def test_validate_accepts_the_projects_params_and_names_mistakes(trainparity: Command, tmp_path: Path) -> None:
    fine = trainparity("validate")
    assert (fine.returncode, fine.stdout) == (0, "params.yaml: fine: 8 configurations, 10 pairs\n")
    text = (ROOT / "params.yaml").read_text()
    (tmp_path / "params.yaml").write_text(text.replace("parallel: ddp", "parallel: dpp"))
    wrong = trainparity("validate", str(tmp_path / "params.yaml"))
    assert wrong.returncode == 2 and wrong.stdout == ""
    assert wrong.stderr.startswith(f"{tmp_path}/params.yaml: parallel: 'dpp' is not one of")
    assert wrong.stderr.endswith("did you mean ddp?\n")


def test_show_without_results_says_what_makes_them(trainparity: Command, tmp_path: Path) -> None:
    done = trainparity("show", str(tmp_path))
    assert done.returncode == 2
    assert done.stderr == f"{tmp_path}/summary.json: no such file; `trainparity repro` makes it\n"


def test_validate_checks_the_workloads_options(trainparity: Command, tmp_path: Path) -> None:
    text = (ROOT / "params.yaml").read_text().replace("{scale: tiny}", "{scale: huge}")
    (tmp_path / "params.yaml").write_text(text)
    done = trainparity("validate", str(tmp_path / "params.yaml"))
    assert done.returncode == 2
    assert done.stderr.startswith(f"{tmp_path}/params.yaml: workload.options.scale: 'huge' is not one of tiny")


@pytest.mark.parametrize("pipeline", ["", "- a list", "stages:", "stages: {compare: {cmd: make}}"])
def test_validate_leaves_other_pipelines_alone(trainparity: Command, pipeline: str, tmp_path: Path) -> None:
    (tmp_path / "params.yaml").write_text((ROOT / "params.yaml").read_text())
    (tmp_path / "dvc.yaml").write_text(pipeline)
    done = trainparity("validate", str(tmp_path / "params.yaml"))
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("command", ["doctor", "validate"])
@pytest.mark.parametrize(("name", "expected"), [("p.yaml", "p.yaml: no such file\n"), ("", "Invalid value for '")])
def test_a_params_path_that_is_no_file_ends_without_a_traceback(
    trainparity: Command, command: str, name: str, expected: str, tmp_path: Path
) -> None:
    done = trainparity(command, str(tmp_path / name))
    assert (done.returncode, done.stdout) == (2, "")
    assert expected in done.stderr and "Traceback" not in done.stderr


def test_show_prints_the_table_of_a_summary(trainparity: Command, tmp_path: Path) -> None:
    report_tree.write(tmp_path)
    built = summary.build(artifacts.read(tmp_path, load(tmp_path / "params.yaml")))
    built.write(tmp_path / "summary.json")
    done = trainparity("show", str(tmp_path))
    assert (done.returncode, done.stderr) == (0, "")
    assert all(name in done.stdout for name in built.configurations)
    assert trainparity("show", str(tmp_path), "--json", "-").stdout == (tmp_path / "summary.json").read_text()
    (tmp_path / "summary.json").write_text("{}")
    damaged = trainparity("show", str(tmp_path))
    assert (damaged.returncode, damaged.stdout) == (2, "")
    assert damaged.stderr.startswith(f"{tmp_path}/summary.json: not the record expected here: ")


def test_status_tells_machines_what_would_run(trainparity: Command, tmp_path: Path) -> None:
    (tmp_path / "params.yaml").write_text(report_tree.PARAMS)
    last = {"prepare": 1.0, "reference": 20.0, "train/cpu": 9.0, "compare": 2.0, "report": 3.0}
    Seconds(last=last).write(tmp_path / ".trainparity/seconds.json")
    told = json.loads(trainparity("status", "--json", "-", folder=tmp_path).stdout)
    names = [f"train@{name}" for name in load(tmp_path / "params.yaml").configs]
    stages = ["prepare", "reference", *names, "compare", "report"]
    assert told == {"changes": [], "to_run": stages, "seconds": 98.0}
    said = trainparity("status", folder=tmp_path).stdout
    assert said == "12 stages to run, about 2 min\n"
    (tmp_path / "dvc.yaml").write_text((ROOT / "dvc.yaml").read_text())
    said = trainparity("status", folder=tmp_path).stdout
    assert said.endswith(" stages to run: there is no dvc.lock, which says what has run\n"), said


@pytest.mark.parametrize("command", ["ab", "check", "compare", "controls", "curves", "doctor", "show", "studies"])
def test_every_command_with_a_table_writes_it_as_json_and_as_markdown(command: str) -> None:
    options = typer.main.get_command(cli.app).commands[command].params  # type: ignore[attr-defined]
    assert {"--json", "--markdown"} <= {name for option in options for name in option.opts}


def test_the_answer_of_compare_takes_the_tables_place(trainparity: Command, tmp_path: Path) -> None:
    synthetic.trace().save(tmp_path / "a")
    synthetic.trace(weights=(2.0,)).save(tmp_path / "b")
    done = trainparity("compare", f"{tmp_path}/a", f"{tmp_path}/b", "--json", "-")
    assert done.returncode == 1 and json.loads(done.stdout)["cause"] == "loss-normalisation"


def test_curves_are_written_as_markdown(trainparity: Command, tmp_path: Path) -> None:
    for name, shift in (("a", 0.0), ("b", 5.0)):
        for seed in range(4):
            (tmp_path / f"{name}{seed}").mkdir()
            rows = "".join(f"{step},loss,{1 / (step + 1) + shift + seed / 100}\n" for step in range(20))
            (tmp_path / f"{name}{seed}/curve.csv").write_text("step,metric,value\n" + rows)
    against = [word for seed in range(4) for word in ("--against", f"{tmp_path}/b{seed}")]
    done = trainparity("curves", *(f"{tmp_path}/a{seed}" for seed in range(4)), *against, "--markdown", "-")
    assert (done.returncode, done.stderr) == (1, "")
    assert "| drifted | 4 and 4 | " in done.stdout


def test_a_recorded_scripts_output_is_not_mixed_with_an_answer(trainparity: Command) -> None:
    done = trainparity("ab", "--json", "-", "python train.py", "python train.py")
    assert done.returncode == 2 and done.stderr.startswith("standard output is the recorded script's")


def test_bash_completes_commands_and_configurations(tmp_path: Path) -> None:
    """By what `--install-completion` writes for the shell, which it finds by itself."""
    script = """
    trainparity --install-completion >/dev/null && . ~/.bashrc
    complete -p trainparity | grep -q _trainparity_completion || exit 3
    COMP_WORDS=(trainparity do) COMP_CWORD=1; _trainparity_completion trainparity; echo "${COMPREPLY[*]}"
    COMP_WORDS=(trainparity train cu) COMP_CWORD=2; _trainparity_completion trainparity; echo "${COMPREPLY[*]}"
    """
    environment = os.environ | {
        "HOME": str(tmp_path),
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
    }
    done = subprocess.run(
        ["bash", "-c", script], cwd=ROOT, env=environment, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (0, "doctor\ncuda-single\n"), done.stderr


WITHOUT_TORCH = [
    "cli",
    "report.console",
    "report.page",
    "stages.train",
    "stages.reference",
    "stages.experiment",
    "stages.probe",
]


def test_torch_is_imported_only_where_it_is_used() -> None:
    modules = ", ".join(f"trainparity.{module}" for module in WITHOUT_TORCH)
    code = f"import sys, {modules}; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=False).returncode == 0


def test_help_lists_the_commands(trainparity: Command) -> None:
    done = trainparity("--help")
    assert done.returncode == 0
    assert all(name in done.stdout for name in ("doctor", "validate", "show"))
    assert trainparity("--version").stdout.startswith("trainparity 0.")


def test_train_names_a_mistaken_configuration(trainparity: Command) -> None:
    done = trainparity("train", "ddpp")
    assert done.returncode == 2 and "Traceback" not in done.stderr
    assert done.stderr.startswith("params.yaml: configs: 'ddpp' is not one of cpu, mps")
    assert done.stderr.endswith("did you mean ddp?\n")


def test_the_command_is_a_program_of_its_own() -> None:
    command = [sys.executable, "-m", "trainparity.cli", "show", "nowhere"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (2, "nowhere/summary.json: no such file; `trainparity repro` makes it\n")


def test_compare_writes_a_page_whole_or_not_at_all(trainparity: Command, tmp_path: Path) -> None:
    synthetic.trace().save(tmp_path / "a")
    for number, twin in enumerate(synthetic.twins(), 1):
        twin.save(tmp_path / "a/twins" / str(number))
    synthetic.trace(weights=(2.0,)).save(tmp_path / "b")
    page = tmp_path / "pages/page.html"
    done = trainparity("compare", f"{tmp_path}/a", f"{tmp_path}/b", "--html", str(page))
    assert done.returncode == 1, done.stderr
    html = page.read_text()
    assert "loss-normalisation" in html and f"trainparity compare {tmp_path}/a {tmp_path}/b --html" in html
    assert [path.name for path in page.parent.iterdir()] == ["page.html"]
    (tmp_path / "file").write_text("")
    refused = trainparity("compare", f"{tmp_path}/a", f"{tmp_path}/b", "--html", f"{tmp_path}/file/page.html")
    assert refused.returncode == 2 and "Traceback" not in refused.stderr
