"""`trainparity ab`: two commands, two revisions, two interpreters."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any, Literal

import pytest

from tests.support.report_tree import pair
from tests.support.scripts import PLAIN, TOOL, torchrun, trainparity, write
from tests.support.warm import python
from trainparity.parity.recording.trace import Trace
from trainparity.records.verdict import Worst
from trainparity.running.ab import finer
from trainparity.running.folder import folder_of_pair
from trainparity.running.record import Settings

LOADER = (
    PLAIN.replace("import argparse, torch", "import argparse, os, torch, trainparity, torch.distributed as dist")
    .replace("--steps", "--parts")
    .replace(
        "    torch.manual_seed(0)",
        "    ranks = 'RANK' in os.environ and (dist.init_process_group('gloo') or True)\n"
        "    rank, world = (dist.get_rank(), dist.get_world_size()) if ranks else (0, 1)\n"
        "    torch.manual_seed(0)",
    )
)
LOADER = (
    LOADER[: LOADER.index("    with torch.no_grad()")].replace("default=1000", "default=1")
    + """
    if ranks:
        model = nn.parallel.DistributedDataParallel(model)
    batches = trainparity.GlobalBatchSampler(512, 16, rank=rank, world_size=world, accumulation_steps=args.parts)
    loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(data, target), batch_sampler=batches)
    for epoch in range(9):
        batches.set_epoch(epoch)
        for number, (x, y) in enumerate(loader, 1):
            with torch.autocast("cpu", torch.bfloat16, enabled=False):
                loss = nn.functional.mse_loss(model(x), y) / args.parts
            if number % args.parts and ranks:
                with model.no_sync():
                    loss.backward()
            else:
                loss.backward()
            if number % args.parts == 0:
                torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
                optimizer.step()
                optimizer.zero_grad()

main()
"""
)


def ab(folder: Path, *arguments: object, code: int, **options: Any) -> dict[str, Any]:
    """Run `trainparity ab`, check its exit code and return its answer."""
    done = trainparity(
        "ab", "--steps", 6, "--twins", 2, "--json", "answer.json", "--folder", "kept", *arguments, cwd=folder, **options
    )
    assert done.returncode == code, (done.stdout, done.stderr)
    answer = folder / "answer.json"
    return {"text": done.stdout, "errors": done.stderr} | (json.loads(answer.read_text()) if answer.exists() else {})


def commands(*tails: str) -> list[str]:
    return [f"{python()} train.py{tail}" for tail in tails]


def test_equal_commands_are_bitwise_without_twins_and_another_rate_is_named(tmp_path: Path) -> None:
    write(tmp_path, PLAIN)
    found = ab(tmp_path, *commands("", ""), code=0)
    assert found["verdict"] == "bitwise" and not (tmp_path / "kept/a/twins").exists()
    assert "trainparity compare kept/a kept/b" in found["errors"]
    found = ab(tmp_path, "--bisect", *commands("", " --lr 2e-2 --steps 900"), code=1)
    assert (found["verdict"], found["cause"]) == ("different", "learning-rate")
    assert found["bisection"]["smallest"] == [["--lr 2e-2"]]
    assert found["bisection"]["tried"] == {"--lr 2e-2": "different", "--steps 900": "bitwise"}
    assert "settings: --lr 2e-2: this alone is another training (2 sets of settings tried)" in found["text"]
    assert "A / B: different" in found["text"]
    assert len(list((tmp_path / "kept/a/twins").glob("*/trace.json"))) == 2


@pytest.mark.slow
def test_accumulation_and_ranks_with_one_order_of_samples_are_equivalent(tmp_path: Path) -> None:
    write(tmp_path, LOADER)
    found = ab(tmp_path, *commands("", " --parts 4"), code=0)
    assert found["verdict"] == "equivalent"
    found = ab(tmp_path, *commands(""), f"{torchrun()} train.py --parts 2", code=0)
    assert found["verdict"] == "equivalent"
    assert json.loads((tmp_path / "kept/b/trace.json").read_text())["world_size"] == 2


def test_float64_confirms_a_fault_and_its_operator_and_line_are_found(tmp_path: Path) -> None:
    write(tmp_path, PLAIN.replace("nn.Tanh()", "nn.Sequential(nn.Tanh(), nn.Sigmoid())"), "other.py")
    write(tmp_path, PLAIN)
    found = ab(tmp_path, "--ops", "--twins", 0, *(f"{python()} {name}.py" for name in ("train", "other")), code=1)
    assert found["cause"] == "forward" and "it is not rounding" in found["confirmation"]
    operator = found["operator"]
    line = next(number for number, text in enumerate(PLAIN.splitlines(), 1) if "mse_loss(" in text)
    assert (operator["operator"], operator["left"], operator["step"]) == ("aten.addmm", f"train.py:{line}", 0)
    assert operator["only_right"] == [f"aten.sigmoid at other.py:{line}"]
    assert f"operator: aten.addmm at train.py:{line} / other.py:{line} is the first beyond its floor" in found["text"]


JUMPS = """
import sys, torch
from torch import nn

parts, coarse = int(sys.argv[1]), "coarse" in sys.argv
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(20, 48), nn.Tanh(), nn.Linear(48, 5))

class Jumping(torch.optim.SGD):
    def step(self, closure=None):
        super().step()
        with torch.no_grad():
            for parameter in self.param_groups[0]["params"]:
                parameter.mul_(1 + 1e4 * self.rounding)

optimizer = Jumping(model.parameters(), lr=1e-2)
data, labels = torch.randn(6, 32, 20), torch.randint(0, 5, (6, 32))
for batch, wanted in zip(data, labels):
    optimizer.zero_grad()
    made = model(batch)
    if coarse:
        made = made.bfloat16().float()
    whole = nn.functional.cross_entropy(made, wanted)
    pairs = zip(made.detach().chunk(parts), wanted.chunk(parts))
    cut = sum(nn.functional.cross_entropy(*pair) for pair in pairs) / parts
    optimizer.rounding = float(whole.detach() - cut)
    whole.backward()
    optimizer.step()
"""
"""Whose updates depend on how a loss rounds that is cut otherwise: twins cut it alike, and do not show that."""


@pytest.mark.slow
def test_a_difference_that_vanishes_in_float64_is_rounding_unless_a_coarser_format_goes_with_it(tmp_path: Path) -> None:
    write(tmp_path, JUMPS)
    found = ab(tmp_path, *commands(" 1", " 4"), code=0)
    assert found["verdict"] == "equivalent" and found["cause"] is None
    assert found["distance_over_floor"] > 16 and "it was rounding" in found["confirmation"]
    assert "trainparity compare kept/a kept/b (without float64's answer: different)" in found["text"] + found["errors"]
    found = ab(tmp_path, *commands(" 1", " 1 coarse"), code=1)
    assert found["verdict"] == "different" and found["cause"]
    assert "or a coarser format" in found["confirmation"] and "it was rounding" not in found["confirmation"]


WAVES = """
import sys, torch
from torch import nn

parts, factor = int(sys.argv[1]), float(sys.argv[2])
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(8, 32), nn.Tanh(), nn.Linear(32, 4))
optimizer = torch.optim.SGD(model.parameters(), lr=1e-6)
for batch in torch.randn(8, 16, 8):
    optimizer.zero_grad()
    for part in batch.chunk(parts):
        with torch.autocast("cpu", torch.bfloat16):
            loss = (factor * (100 * model(part)).sin()).square().sum() / len(batch)
        loss.backward()
    optimizer.step()
"""
"""Whose gradients depend on the last digits that bf16 has."""


@pytest.mark.slow
def test_what_the_noise_floor_hides_is_judged_in_float64(tmp_path: Path) -> None:
    write(tmp_path, WAVES)
    one, parts, other = (f"{python()} train.py {words}" for words in ("1 1", "2 1", "1 1.02"))
    unclear = ab(tmp_path, "--no-float64", one, parts, code=2)
    assert unclear["hidden_by_floor"] and "judge such runs in float64" in unclear["text"]
    right = ab(tmp_path, one, parts, code=0)
    assert right["verdict"] == "equivalent" and "judged in float64" in right["confirmation"]
    assert "compare kept/float64/a kept/float64/b" in right["errors"]
    wrong = ab(tmp_path, "--ops", one, other, code=1)
    assert (wrong["verdict"], wrong["cause"]) == ("different", "loss-normalisation")
    assert wrong["operator"] and "judged in float64" in wrong["confirmation"]


GELUS = """
import sys, torch
from torch import nn

parts, form = int(sys.argv[1]), sys.argv[2]
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(20, 48), nn.GELU(approximate=form), nn.Linear(48, 5))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
for batch, labels in zip(torch.randn(12, 32, 20), torch.randint(0, 5, (12, 32))):
    optimizer.zero_grad()
    for some, wanted in zip(batch.chunk(parts), labels.chunk(parts)):
        with torch.autocast("cpu", torch.bfloat16):
            made = model(some)
        (nn.functional.cross_entropy(made.float(), wanted) / parts).backward()
    optimizer.step()
"""


@pytest.mark.slow
def test_what_a_coarse_format_rounds_away_is_seen_in_float64(tmp_path: Path) -> None:
    write(tmp_path, GELUS)
    one, parts, other = (f"{python()} train.py {words}" for words in ("1 none", "4 none", "1 tanh"))
    assert ab(tmp_path, "--no-float64", one, other, code=0)["confirmation"] is None
    right = ab(tmp_path, "--steps", 12, one, parts, code=0)
    assert right["verdict"] == "equivalent" and right["confirmation"].endswith("it was rounding")
    assert right["steps_compared"] == 12  # those as they are
    wrong = ab(tmp_path, "--ops", one, other, code=1)
    assert (wrong["verdict"], wrong["cause"], wrong["tensor"]) == ("different", "forward", "activation 1")
    assert "the rounding of the runs' own format hid it" in wrong["confirmation"]
    assert wrong["operator"]["operator"] == "aten.gelu"
    assert "compare kept/float64/a kept/float64/b" in wrong["errors"]


SCALED = """
import sys, torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(20, 48), nn.GELU(), nn.Linear(48, 5))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for batch, labels in zip(torch.randn(12, 32, 20), torch.randint(0, 5, (12, 32))):
    optimizer.zero_grad()
    nn.functional.cross_entropy(model(batch * float(sys.argv[1])), labels).backward()
    optimizer.step()
"""


@pytest.mark.slow
def test_fp32_further_than_right_runs_lie_is_judged_in_float64(tmp_path: Path) -> None:
    write(tmp_path, SCALED)
    one, other = (f"{python()} train.py {factor}" for factor in ("1", "1.000003"))
    far = ab(tmp_path, "--no-float64", one, other, code=0)
    assert 5 < far["distance_over_floor"] < 16 and "right runs seldom lie beyond 5 times" in far["text"]
    wrong = ab(tmp_path, one, other, code=1)
    assert (wrong["verdict"], wrong["cause"]) == ("different", "inputs")


def furthest(kind: Literal["gradient", "weight"], over_floor: float, step: int) -> Worst:
    fields = {"distance_over_floor": over_floor, "distance": over_floor * 1e-7, "floor": 1e-7}
    return Worst(kind=kind, step=step, tensor="(all)", **fields)


@pytest.mark.parametrize(("distance", "steps", "recorded"), [(7.0, 0, 31), (7.0, 40, 31), (4.0, 0, 8), (4.0, 6, 6)])
def test_float64_reaches_the_step_where_runs_lie_furthest(distance: float, steps: int, recorded: int) -> None:
    worst = [furthest("gradient", distance, 30), furthest("weight", distance / 2, 39)]
    found = pair("b", "equivalent", distance_over_floor=distance, worst=worst)
    settings = finer(Settings(steps=steps, interval=1, twins=3), found)
    assert (settings.steps, settings.twins, settings.float64) == (recorded, 1, True)


@pytest.mark.slow
def test_what_is_recorded_stays_when_float64_is_interrupted(tmp_path: Path) -> None:
    waits = "if torch.get_default_dtype() == torch.float64:\n    print('finer', flush=True)\n    time.sleep(60)\n"
    write(tmp_path, "import torch, time\n" + waits + GELUS)
    commands = [f"{python()} train.py {words}" for words in ("1 none", "4 none")]
    options = ["--steps", "4", "--twins", "1", "--folder", "kept"]
    process = subprocess.Popen(
        [TOOL, "ab", *options, *commands], cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout and any(line == "finer\n" for line in process.stdout)
    process.send_signal(signal.SIGTERM)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 143
    assert errors.endswith("stopped by SIGTERM; both runs are kept: trainparity compare kept/a kept/b\n"), errors
    assert trainparity("compare", "kept/a", "kept/b", cwd=tmp_path).returncode == 0


def git(folder: Path, *arguments: str) -> str:
    settings = ["-c", "user.name=a", "-c", "user.email=a@example.com", "-c", "init.defaultBranch=main"]
    return subprocess.run(["git", *settings, *arguments], cwd=folder, check=True, capture_output=True, text=True).stdout


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """A repository of three commits: of the script, of another line in it, of a file beside it."""
    folder = tmp_path / "repository"
    (folder / "scripts").mkdir(parents=True)
    git(folder, "init")
    write(folder / "scripts", PLAIN.replace("torch.randn(512, 8)", "torch.load('../data/x.pt')"))
    write(folder, "/data\n", ".gitignore")
    commit(folder)
    script = folder / "scripts/train.py"
    script.write_text(script.read_text().replace("mse_loss(model(data[batch])", "mse_loss(0.5 * model(data[batch])"))
    commit(folder)
    write(folder, "text", "README")
    commit(folder)
    (folder / "data").mkdir()
    subprocess.run(
        [python(), "-c", "import torch; torch.save(torch.randn(512, 8), 'data/x.pt')"], cwd=folder, check=True
    )
    return folder


def commit(folder: Path) -> None:
    git(folder, "add", ".")
    git(folder, "commit", "-m", "a change")


def test_two_revisions(repository: Path) -> None:
    scripts = repository / "scripts"
    run = ("--link", "../data", "--", python(), "train.py")
    script = scripts / "train.py"
    script.write_text(script.read_text() + "# not committed\n")
    found = ab(scripts, "--base", "HEAD~2", "--test", "HEAD", *run, code=1)
    assert found["verdict"] == "different" and found["step"] == 0
    assert "1 file with uncommitted changes: the changes are not part of either revision" in found["errors"]
    assert ab(scripts, "--base", "HEAD~1", "--test", "main", *run, code=0)["verdict"] == "bitwise"
    assert git(repository, "worktree", "list").count("\n") == 1
    assert "# not committed" in script.read_text()


def test_a_link_outside_of_the_repository_is_refused(repository: Path, tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    run = ("--base", "HEAD", "--test", "HEAD", "--link", "../../data", f"{python()} train.py")
    errors = ab(repository / "scripts", *run, code=2)["errors"]
    assert (
        f"--link ../../data: lies outside of {repository}: have the script read it by its path {tmp_path}/data"
        in errors
    )
    (repository / "elsewhere").symlink_to(tmp_path)  # which no revision holds, and lies in the repository
    run = ("--base", "HEAD", "--test", "HEAD", "--link", "../data", "--link", "../elsewhere", f"{python()} train.py")
    assert ab(repository / "scripts", *run, code=0)["verdict"] == "bitwise"


def test_an_interrupt_removes_the_worktrees(repository: Path, tmp_path: Path) -> None:
    command = [TOOL, "ab", "--base", "HEAD~1", "--test", "HEAD", "--link", "../data", f"{python()} train.py"]
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    process = subprocess.Popen(
        command,
        cwd=repository / "scripts",
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env=os.environ | {"TMPDIR": str(scratch)},
    )
    assert process.stdout and process.stdout.readline() == "step 0\n"
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=60)
    assert process.returncode == 143
    assert git(repository, "worktree", "list").count("\n") == 1
    assert not [path for path in scratch.iterdir() if path.name.startswith("trainparity")]


def test_code_of_the_working_tree_is_not_a_revisions(repository: Path) -> None:
    (repository / "package").mkdir()
    write(repository / "package", "RATE = 0.1", "mine.py")
    script = repository / "scripts/train.py"
    script.write_text(f"import sys; sys.path.append({str(repository / 'package')!r}); import mine\n" + PLAIN)
    commit(repository)
    found = ab(repository, "--base", "HEAD", "--test", "HEAD", f"{python()} scripts/train.py", code=2)
    assert "ran code of the working tree: package/mine.py" in found["errors"]


@pytest.mark.parametrize("through", ["{python} {script}", "sh -c 'cd {folder} && {python} train.py'"])
def test_a_script_of_the_working_tree_is_not_a_revisions(through: str, repository: Path) -> None:
    """It would be the same in both, and equal in every bit."""
    script = repository / "scripts/train.py"
    command = through.format(python=python(), script=script, folder=script.parent)
    found = ab(script.parent, "--base", "HEAD~2", "--test", "HEAD", "--link", "../data", command, code=2)
    assert "ran code of the working tree: scripts/train.py. Name scripts by their place" in found["errors"]


def test_what_is_equal_proves_nothing_of_a_training_that_was_not_recorded(tmp_path: Path) -> None:
    write(tmp_path, PLAIN)
    first = f"{python()} train.py"
    both = [f"sh -c '{first} && {first} --lr {rate}'" for rate in (0.1, 0.5)]
    found = ab(tmp_path, *both, code=2)
    assert found["verdict"] == "cannot judge" and found["reason"].startswith(
        "what was recorded is bitwise, and not all"
    )
    assert "NOT recorded: " in found["reason"] and "started more than one" in found["reason"]


def test_in_a_hook_of_git_with_submodules_and_hooks_that_fail(repository: Path, tmp_path: Path) -> None:
    write(repository, PLAIN.replace('if __name__ == "__main__":', "if True:"), "library.py")
    git(tmp_path, "clone", "repository", "library")  # holds no library.py, which is not committed
    commit(repository)
    git(tmp_path, "-c", "protocol.file.allow=always", "-C", "library", "pull", "--quiet")
    git(repository, "-c", "protocol.file.allow=always", "submodule", "add", tmp_path / "library", "its library")
    write(repository, "import sys; sys.path.append('its library'); import library", "outer.py")
    commit(repository)
    write(repository, "staged, and in no commit", "staged.txt")
    git(repository, "add", "staged.txt")
    hook = write(repository / ".git/hooks", "#!/bin/sh\nexit 1\n", "post-checkout")
    hook.chmod(0o755)
    index = repository / ".git/index"
    before = index.read_bytes()
    run = ("--base", "HEAD", "--test", "main", f"{python()} outer.py")
    found = ab(repository, *run, code=0, GIT_INDEX_FILE=str(index), GIT_DIR=".git")
    assert found["verdict"] == "bitwise" and index.read_bytes() == before
    assert git(repository / "its library", "worktree", "list").count("\n") == 1
    assert "'HEAD~99' is no commit of" in ab(repository, "--base", "HEAD~99", "--test", *run[2:], code=2)["errors"]


@pytest.mark.slow
def test_two_interpreters(tmp_path: Path) -> None:
    other = tmp_path / "venv/bin/python"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", tmp_path / "venv"], check=True)
    site = next((tmp_path / "venv/lib").glob("python*/site-packages"))
    installed = next(Path(p) for p in sys.path if p.endswith("site-packages"))
    (site / "others.pth").write_text(f"{installed}\n")
    write(tmp_path, "import sys; print(sys.executable)\n" + PLAIN)
    run = ("--python-a", sys.executable, "--python-b", other)
    found = ab(tmp_path, *run, "python train.py --lr 1e-3", code=0)
    assert found["verdict"] == "bitwise" and f"{other}\n" in found["text"]
    assert "start" in ab(tmp_path, *run, "bash train.sh", code=2)["errors"]


def test_both_commands_read_the_same_from_standard_input(tmp_path: Path) -> None:
    write(tmp_path, PLAIN.replace("lr=args.lr", "lr=float(input() or 0)").replace("input()", "sys.stdin.readline()"))
    script = tmp_path / "train.py"
    script.write_text("import sys\n" + script.read_text())
    command = [python(), "-m", "trainparity.cli", "ab", "--steps", "2", "--twins", "0", *commands("", "")]
    options: dict[str, Any] = {"cwd": tmp_path, "capture_output": True, "check": False, "text": True}
    write(tmp_path, "skipped\n0.1\n", "rates")
    with (tmp_path / "rates").open() as rates:
        os.lseek(rates.fileno(), len("skipped\n"), os.SEEK_SET)
        done = subprocess.run(command, stdin=rates, **options)
    assert done.returncode == 0 and "bitwise" in done.stdout, (done.stdout, done.stderr)
    kept = next((tmp_path / ".trainparity/ab").glob("*/b"))
    assert Trace.load(kept).arrays["setting/lr"][:, 0].tolist() == [0.1] * 2
    done = subprocess.run(command, input="0.1\n0.2\n", **options)
    assert "bitwise" not in done.stdout and "read nothing from the pipe" in done.stderr


def test_pairs_of_one_moment_do_not_share_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with folder_of_pair(None) as one, folder_of_pair(None) as other, folder_of_pair(tmp_path / "kept"):
        assert one != other
        assert "another `trainparity ab` writes there" in ab(tmp_path, *commands("", ""), code=2)["errors"]
    assert not list((tmp_path / ".trainparity/ab").glob("2*"))


MISTAKES = {
    "one command": (["true"], "give two commands, each quoted as one word, and not 1;"),
    "no command": (["''", "true"], "is no command"),
    "a shell's": (["python a.py < x", "true"], "no shell runs it, whose < is; write sh -c"),
    "an open quote": (["'", "true"], "No closing quotation"),
    "one revision": (["--base", "HEAD", "true"], "give both of --base and --test"),
    "no repository": (["--base", "HEAD", "--test", "HEAD", "true"], "not a git repository"),
    "two commands for two revisions": (
        ["--base", "HEAD", "--test", "HEAD", "python a.py", "python b.py"],
        "--python-b, quoted as one word or not at all: 'python a.py' is no program",
    ),
    "two commands for two interpreters": (
        ["--python-a", sys.executable, "--python-b", sys.executable, "python a.py", "python b.py"],
        "give one command with --base and --test, or with --python-a and --python-b, quoted as one word",
    ),
    "no interpreter": (["--python-a", "x", "--python-b", "y", "python t.py"], "x is no Python interpreter"),
    "another program": (
        ["--python-a", sys.executable, "--python-b", "/bin/cat", "python t.py"],
        "/bin/cat is no Python",
    ),
    "a failure": (["false", "true"], "the command failed with exit code 1"),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_mistakes_are_named_with_exit_code_2(mistake: str, tmp_path: Path) -> None:
    arguments, message = MISTAKES[mistake]
    done = trainparity("ab", *arguments, cwd=tmp_path)
    assert done.returncode == 2 and message in done.stderr


def test_an_earlier_answer_is_none_of_a_call_that_fails(tmp_path: Path) -> None:
    write(tmp_path, PLAIN)
    assert ab(tmp_path, *commands("", ""), code=0)["verdict"] == "bitwise"
    found = ab(tmp_path, *commands("", " --no-such-option"), code=2)
    assert "verdict" not in found and not (tmp_path / "answer.json").exists()
