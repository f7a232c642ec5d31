"""`trainparity run` on scripts that have no line of ours."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from tests.support.scripts import PLAIN, TOOL, torchrun, trainparity, write
from tests.support.warm import python
from trainparity.parity.compare import compare_folders
from trainparity.parity.noise.floor import NoiseFloor
from trainparity.parity.recording.trace import Trace
from trainparity.parity.verdict import judge_traces
from trainparity.records.recorded import RunRecord
from trainparity.running.command import Command, Runner
from trainparity.running.errors import RunError
from trainparity.running.folder import folder_of_pair, replacing
from trainparity.running.record import Settings, record_command


def record(folder: Path, *command: object, twins: int = 0, steps: int = 6, **environment: str) -> Path:
    """Record a command and expect that it is stopped in good order."""
    done = trainparity("run", "runs/a", "--twins", twins, "--steps", steps, "--", *command, cwd=folder, **environment)
    assert done.returncode == 0, done.stderr
    return folder / "runs/a"


def names(run: Path) -> list[str]:
    return list(Trace.load(run).layout.parameters)


def test_a_plain_script_and_its_twins(tmp_path: Path) -> None:
    write(tmp_path, PLAIN)
    done = trainparity("run", "runs/a", "--twins", 2, "--steps", 6, "--", sys.executable, "train.py", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [f"step {step}" for step in range(5)]
    trace = Trace.load(tmp_path / "runs/a")
    assert trace.layout.steps == list(range(6)) and trace.arrays["num_samples"].tolist() == [16] * 6
    assert trace.layout.activations == ["(input)", "0", "1", "2", "(output)"]
    assert (tmp_path / "runs/a/twins/2/output.txt").read_text() == done.stdout
    twins = [Trace.load(tmp_path / "runs/a/twins" / number) for number in ("1", "2")]
    assert judge_traces(trace, twins[0], NoiseFloor(trace, twins), 16.0).verdict == "equivalent"
    kept = json.loads((tmp_path / "runs/a/run.json").read_text())
    assert (kept["steps"], kept["stopped"], kept["twins"], kept["model"]) == (6, True, 2, "Sequential")
    assert list((tmp_path / "runs").iterdir()) == [tmp_path / "runs/a"]


def test_two_recordings_at_a_time_do_not_share_a_folder(tmp_path: Path) -> None:
    write(tmp_path, PLAIN)
    with replacing(tmp_path / "runs/a"), replacing(tmp_path / "runs/[a]"):
        done = trainparity("run", "runs/a", "--steps", 1, "--", python(), "train.py", cwd=tmp_path)
    assert done.returncode == 2 and "runs/a: another process records into it" in done.stderr
    assert not done.stdout and not list((tmp_path / "runs").iterdir())


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="no folder in which even root can make none")
@pytest.mark.parametrize("folder", ["/proc/nowhere", "/proc/nowhere/a"])
def test_a_folder_that_cannot_be_made_is_named(folder: str) -> None:
    said = f"the folder {folder} can't be made: No such file or directory"
    with pytest.raises(RunError, match=said), replacing(Path(folder)):
        pass
    with pytest.raises(RunError, match=said), folder_of_pair(Path(folder)):
        pass


def test_a_script_that_ends_before(tmp_path: Path) -> None:
    write(tmp_path, PLAIN)
    run = record(tmp_path, python(), "train.py", "--steps", 3)
    assert Trace.load(run).layout.steps == [0, 1, 2]
    assert not json.loads((run / "run.json").read_text())["stopped"]


ENDS = {
    "sys.exit": ("import sys; sys.exit(0)", 0),
    "os._exit": ("import os; os._exit(0)", 0),
    "a crash": ("raise RuntimeError('boom')", 1),
    "its own exit code": ("import sys; sys.exit(7)", 7),
}


@pytest.mark.parametrize("end", ENDS)
def test_a_script_that_ends_in_its_own_way(end: str, tmp_path: Path) -> None:
    line, code = ENDS[end]
    write(tmp_path, PLAIN.replace('        print("step", step', f"        if step == 2: {line}\n        print(step"))
    done = trainparity("run", "runs/a", "--twins", 1, "--steps", 6, "--", python(), "train.py", cwd=tmp_path)
    assert done.returncode == code, done.stderr
    assert Trace.load(tmp_path / "runs/a").layout.steps == [0, 1, 2]
    assert ("boom" in done.stderr) == (end == "a crash")
    assert (tmp_path / "runs/a/twins/1/trace.json").exists() == (code == 0)


NO_TRAINING = {
    "not Python": (["true"], "no Python process took part"),
    "isolated Python": ([sys.executable, "-I", "-c", "import torch"], "no Python process took part"),
    "no torch": ([sys.executable, "-c", "print(1)"], "no Python process imported torch"),
    "no optimizer": ([sys.executable, "-c", "import torch"], "no optimizer of torch.optim was made"),
    "no step": (
        [sys.executable, "-c", "import torch; torch.optim.SGD([torch.nn.Parameter(torch.ones(1))])"],
        "an optimizer was made, but it made no step",
    ),
    "no program": (["/no/such/program"], "/no/such/program: command not found"),
}


@pytest.mark.parametrize("command", NO_TRAINING)
def test_a_program_that_does_not_train(command: str, tmp_path: Path) -> None:
    words, reason = NO_TRAINING[command]
    done = trainparity("run", "runs/a", "--", *words, cwd=tmp_path)
    assert done.returncode == 2 and reason in done.stderr
    assert not (tmp_path / "runs/a").exists() and not list((tmp_path / "runs").iterdir())


def test_only_a_run_of_ours_is_replaced(tmp_path: Path) -> None:
    write(tmp_path, PLAIN)
    (tmp_path / "runs/a").mkdir(parents=True)
    (tmp_path / "runs/a/thesis.tex").write_text("mine")
    command = ("--twins", 0, "--steps", 2, "--", python(), "train.py")
    done = trainparity("run", "runs/a", *command, cwd=tmp_path)
    assert done.returncode == 2 and "runs/a holds something else" in done.stderr
    assert (tmp_path / "runs/a/thesis.tex").read_text() == "mine"
    (tmp_path / "runs/a/run.json").write_text('{"made by": "another tool"}')
    done = trainparity("run", "runs/a", *command, cwd=tmp_path)
    assert done.returncode == 2 and "runs/a holds something else" in done.stderr and "earlier run" not in done.stderr
    for steps in (2, 3):
        assert trainparity("run", "runs/b", *command[:3], steps, *command[4:], cwd=tmp_path).returncode == 0
        assert len(Trace.load(tmp_path / "runs/b").layout.steps) == steps


SAVES = PLAIN.replace("import argparse, torch", "import argparse, os, torch").replace(
    "        optimizer.step()\n",
    "        os.makedirs('runs/a/saved', exist_ok=True); open(f'runs/a/saved/{step}', 'w'); optimizer.step()\n",
)
"""It saves checkpoints into the folder that it is recorded into."""


def test_what_is_not_of_the_recording_stays_in_its_folder(tmp_path: Path) -> None:
    write(tmp_path, SAVES)
    run = record(tmp_path, python(), "train.py", twins=1, steps=3)
    made = {"run.json", "saved", "trace.json", "trace.safetensors"}
    assert {path.name for path in run.iterdir()} == made | {"twins"}
    (run / "notes.txt").write_text("mine")
    (run / "saved/best").symlink_to("2")
    record(tmp_path, python(), "train.py", steps=2)
    assert {path.name for path in run.iterdir()} == made | {"notes.txt"}
    assert {path.name for path in (run / "saved").iterdir()} == {"0", "1", "2", "best"}
    assert (run / "notes.txt").read_text() == "mine" and len(Trace.load(run).layout.steps) == 2
    assert [path.name for path in run.parent.iterdir()] == ["a"]


def test_a_file_of_the_scripts_with_a_name_of_the_recordings_is_not_replaced(tmp_path: Path) -> None:
    write(tmp_path, SAVES.replace("runs/a/saved/{step}", "runs/a/trace.json"))
    done = trainparity("run", "runs/a", "--twins", 0, "--steps", 2, "--", python(), "train.py", cwd=tmp_path)
    assert done.returncode == 2 and "runs/a/trace.json: written meanwhile, by the script" in done.stderr
    assert {path.name for path in (tmp_path / "runs/a").iterdir()} == {"saved", "trace.json"}
    assert [path.name for path in (tmp_path / "runs").iterdir()] == ["a"]


def test_a_recording_that_is_killed_while_it_takes_its_place_loses_no_file(tmp_path: Path) -> None:
    """Where the script goes on and writes there, its newer files stay."""
    old, new = tmp_path / ".a.unfinished-12345678/old", tmp_path / "a"
    for folder, names in ((old, ("trace.json", "notes", "saved/1", "saved/both")), (new, ("trace.json", "saved/both"))):
        (folder / "saved").mkdir(parents=True)
        for name in names:
            (folder / name).write_text(folder.name)
    RunRecord(
        command="", steps=1, stopped=True, exit_code=0, twins=0, model="", optimizer="", beside=[], not_recorded=[],
        files=["run.json", "trace.json"],
    ).write(old / "run.json")  # fmt: skip
    with replacing(tmp_path / "b"):  # whatever is recorded next
        pass
    found = {str(path.relative_to(tmp_path)): path.read_text() for path in tmp_path.rglob("*") if path.is_file()}
    assert found == {"a/trace.json": "a", "a/saved/both": "a", "a/saved/1": "old", "a/notes": "old"}


def test_a_link_to_a_folder_leads_to_the_run_afterwards(tmp_path: Path) -> None:
    write(tmp_path, PLAIN)
    (tmp_path / "disk/there").mkdir(parents=True)
    (tmp_path / "runs").mkdir()
    for target in ("there", "not-yet-there"):
        (tmp_path / "runs/a").unlink(missing_ok=True)
        (tmp_path / "runs/a").symlink_to(tmp_path / "disk" / target)
        run = record(tmp_path, python(), "train.py", steps=1)
        assert run.is_symlink() and (tmp_path / "disk" / target / "run.json").exists()


def test_a_name_that_is_no_utf_8_is_refused_before_anything_runs(tmp_path: Path) -> None:
    with pytest.raises(RunError, match="is no UTF-8, and no record can hold it"), Runner() as runner:
        record_command(runner, Command(("true", "b\udcff")), tmp_path / "a", Settings(1, 1, 0))


def test_temporary_files_where_no_search_path_leads(tmp_path: Path) -> None:
    (tmp_path / "a:b").mkdir()
    done = trainparity("run", "runs/a", "--", "true", cwd=tmp_path, TMPDIR=str(tmp_path / "a:b"))
    assert done.returncode == 2 and "set TMPDIR" in done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_an_interrupt_reaches_the_script_and_keeps_nothing(number: int, tmp_path: Path) -> None:
    write(tmp_path, PLAIN.replace('print("step"', 'import time; time.sleep(0.2); print("step"'))
    process = subprocess.Popen(
        [TOOL, "run", "runs/a", "--", sys.executable, "train.py"],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # it is ignored in a shell's background job
    )
    assert process.stdout and process.stdout.readline() == "step 0\n"
    children = psutil.Process(process.pid).children(recursive=True)
    process.send_signal(number)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == (-number if number == signal.SIGKILL else 128 + number), errors
    assert ("KeyboardInterrupt" in errors) == (number == signal.SIGINT)
    assert not psutil.wait_procs(children, timeout=10)[1]
    assert not (tmp_path / "runs/a").exists()
    assert number == signal.SIGKILL or not list((tmp_path / "runs").iterdir())


@pytest.mark.slow
def test_a_script_that_does_not_end_after_a_signal_is_told_of_and_killed_by_the_third(tmp_path: Path) -> None:
    deaf = "import signal; signal.signal(signal.SIGINT, signal.SIG_IGN)\n"
    write(tmp_path, deaf + PLAIN.replace('print("step"', 'import time; time.sleep(0.2); print("step"'))
    process = subprocess.Popen(
        [TOOL, "run", "runs/a", "--steps", "1000", "--", sys.executable, "train.py"],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    assert process.stdout and process.stdout.readline() == "step 0\n"
    process.send_signal(signal.SIGINT)
    assert process.stderr and "waiting for the command to end" in process.stderr.readline()
    for _ in range(2):
        process.send_signal(signal.SIGINT)
        time.sleep(0.5)  # two of a kind that wait for one process are one
    _, errors = process.communicate(timeout=30)
    assert process.returncode == 130, errors


@pytest.mark.slow
def test_the_users_own_sitecustomize_runs_too(tmp_path: Path) -> None:
    (tmp_path / "site").mkdir()
    write(tmp_path / "site", "import builtins; builtins.MINE = 'sitecustomize of the user'", "sitecustomize.py")
    write(tmp_path, "import sys, sitecustomize; print(MINE, sitecustomize.__file__, sys.path)\n" + PLAIN)
    plain = subprocess.run(
        [sys.executable, "train.py", "--steps", "0"],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(tmp_path / "site")},
        capture_output=True,
        text=True,
        check=True,
    )
    done = trainparity(
        "run", "runs/a", "--twins", 0, "--steps", 2, "--", sys.executable, "train.py",
        cwd=tmp_path, PYTHONPATH=str(tmp_path / "site"),
    )  # fmt: skip
    assert done.returncode == 0
    # The script sees its own sitecustomize and the search path that it has without us.
    assert done.stdout.splitlines()[0] == plain.stdout.splitlines()[0]


def test_a_script_that_catches_everything_and_trains_in_a_thread_is_stopped(tmp_path: Path) -> None:
    text = PLAIN.replace("        optimizer.step()", "        try: optimizer.step()\n        except: print('caught')")
    run = record(tmp_path, python(), write(tmp_path, text))
    assert len(Trace.load(run).layout.steps) == 6
    text = PLAIN.replace(
        "    main()\n", "    import threading\n    t = threading.Thread(target=main); t.start(); t.join()\n"
    )
    text = text.replace("t.join()\n", "t.join(); open('end', 'w')\n").replace(
        "def main():", "def main():\n    sys.stdout = None"
    )
    run = record(tmp_path, python(), write(tmp_path, "import sys\n" + text))
    assert len(Trace.load(run).layout.steps) == 6 and not (tmp_path / "end").exists()


def test_a_trace_that_is_not_written_is_told_from_no_training(tmp_path: Path) -> None:
    write(tmp_path, PLAIN.replace('print("step"', "import os; os.kill(os.getpid(), 9); print('step'"))
    done = trainparity("run", "runs/a", "--", python(), "train.py", cwd=tmp_path)
    assert done.returncode == 137 and "had not written its trace when the command ended" in done.stderr
    full = PLAIN.replace(
        'print("step"', "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (999, 999)); print('step'"
    )
    write(tmp_path, full)
    done = trainparity("run", "runs/a", "--steps", 2, "--", python(), "train.py", cwd=tmp_path)
    assert done.returncode == 2 and "can't record this training: OSError: [Errno 27] File too large" in done.stderr


def test_what_a_command_leaves_in_the_background_is_left_alone(tmp_path: Path) -> None:
    begin = "import os, time\nif os.fork():\n    while not os.path.exists('begun'): time.sleep(0.01)\n    os._exit(0)\n"
    wait = (
        "open('begun', 'w').close()\n"
        "        while os.path.exists(os.environ['TRAINPARITY_SESSION']): time.sleep(0.01)\n"
    )
    end = '    print("the script\'s end")\n'
    text = PLAIN.replace("        optimizer.step()", f"        {wait}        optimizer.step()")
    write(tmp_path, begin + text.replace(end, f"{end}    open('end', 'w')\n").replace("default=1000", "default=5"))
    done = trainparity("run", "runs/a", "--steps", 3, "--", python(), "train.py", cwd=tmp_path)
    assert done.returncode == 2 and "it made no step" in done.stderr
    deadline = time.monotonic() + 60
    while not (tmp_path / "end").exists():
        assert time.monotonic() < deadline
        time.sleep(0.05)
    assert not list((tmp_path / "runs").iterdir())


def test_scripts_run_by_exec_with_an_emptied_search_path(tmp_path: Path) -> None:
    inner = write(tmp_path, PLAIN, "inner.py")
    text = f"import sys, torch\nsys.path[:] = [p for p in sys.path if 'python' in p]\nexec(open({str(inner)!r}).read())"
    assert len(names(record(tmp_path, python(), write(tmp_path, text)))) == 4


DDP = PLAIN.replace(
    "    torch.manual_seed(0)",
    "    import torch.distributed as dist, os\n"
    "    dist.init_process_group('gloo')\n"
    "    rank, world = dist.get_rank(), dist.get_world_size()\n"
    "    torch.manual_seed(0)",
).replace("% 512\n", "% 512\n        batch = batch[rank::world]\n")
WRAPPED = "    model = nn.parallel.DistributedDataParallel(model)\n"
OPTIMIZER = "    optimizer = torch.optim.AdamW"


@pytest.mark.parametrize("order", ["wrapped first", "optimizer first"])
def test_ranks_of_torchrun_are_recorded_and_stopped_together(order: str, tmp_path: Path) -> None:
    end = "(model.parameters(), lr=args.lr)\n"
    text = DDP.replace(OPTIMIZER, WRAPPED + OPTIMIZER) if order == "wrapped first" else DDP.replace(end, end + WRAPPED)
    run = record(tmp_path, *torchrun().split(), write(tmp_path, text))
    trace = Trace.load(run)
    assert trace.layout.world_size == 2 and len(trace.layout.steps) == 6
    assert trace.arrays["num_samples"].tolist() == [16] * 6
    assert names(run)[0] == "0.weight"


@pytest.mark.slow
def test_ranks_spawned_by_the_script(tmp_path: Path) -> None:
    text = (
        DDP.replace(OPTIMIZER, WRAPPED + OPTIMIZER)
        .replace("def main():", "def main(rank):")
        .replace(
            "init_process_group('gloo')",
            "init_process_group('gloo', init_method='file://' + os.path.abspath('meet'), rank=rank, world_size=2)",
        )
        .replace("    main()\n", "    torch.multiprocessing.spawn(main, nprocs=2)\n")
    )
    run = record(tmp_path, python(), write(tmp_path, text))
    assert Trace.load(run).layout.world_size == 2 and len(Trace.load(run).layout.steps) == 6


STEP = "        optimizer.step()\n"
EARLIER = {
    "as it ends": (STEP + "        if rank and step == 2: return\n", "at step 3 rank 1 has ended", 0),
    "as it destroys its process group": (
        STEP + "        if rank and step == 2: return torch.distributed.destroy_process_group()\n",
        "at step 3 rank 1 has ended",
        0,
    ),
    "without any step": (STEP, "rank 1 records nothing", 2),
}


@pytest.mark.parametrize("end", EARLIER)
def test_a_rank_that_leaves_before_the_others_is_not_waited_for(end: str, tmp_path: Path) -> None:
    step, said, code = EARLIER[end]
    script = DDP.replace(STEP, step)
    if code:
        script = script.replace(OPTIMIZER, "    if rank: return\n" + OPTIMIZER)
    command = [*torchrun().split(), write(tmp_path, script)]
    done = trainparity("run", "runs/a", "--twins", 0, "--steps", 6, "--", *command, cwd=tmp_path)
    assert done.returncode == code and said in done.stderr.splitlines()[-1], done.stderr
    assert code or Trace.load(tmp_path / "runs/a").layout.steps == [0, 1, 2]


def test_a_script_that_fails_has_not_come_to_its_end(tmp_path: Path) -> None:
    script = write(
        tmp_path, PLAIN.replace("        optimizer.step()\n", "        optimizer.step()\n        assert step < 2\n")
    )
    done = trainparity("run", "runs/a", "--twins", 0, "--steps", 6, "--", python(), script, cwd=tmp_path)
    assert done.returncode == 1 and "to the script's end" not in done.stderr
    assert done.stderr.splitlines()[-1].endswith("the command failed with exit code 1")


def test_a_rank_that_the_first_rank_starts(tmp_path: Path) -> None:
    """As Lightning starts them: the ranks have no parent in common."""
    start = """
import os, subprocess, sys
if "RANK" not in os.environ:
    os.environ |= {"RANK": "0", "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": sys.argv.pop()}
    subprocess.Popen([sys.executable, *sys.argv], env=os.environ | {"RANK": "1"})
"""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    script = write(tmp_path, start + DDP.replace(OPTIMIZER, WRAPPED + OPTIMIZER))
    run = record(tmp_path, python(), script, port)
    assert Trace.load(run).layout.world_size == 2 and len(Trace.load(run).layout.steps) == 6


def test_of_several_trainings_the_first_is_recorded_and_all_are_stopped(tmp_path: Path) -> None:
    write(tmp_path, PLAIN, "inner.py")
    text = (
        "import subprocess, sys\n"
        "for lr in '0.1', '0.2': subprocess.run([sys.executable, 'inner.py', '--lr', lr], check=True)"
    )
    done = trainparity("run", "runs/a", "--twins", 0, "--steps", 3, "--", python(), write(tmp_path, text), cwd=tmp_path)
    assert done.returncode == 0 and "NOT recorded: another training" in done.stderr
    trace = Trace.load(tmp_path / "runs/a")
    assert trace.arrays["setting/lr"][:, 0].tolist() == [0.1] * 3
    assert "the script's end" not in done.stdout
    (tmp_path / "other").mkdir()
    other = record(tmp_path / "other", python(), tmp_path / "inner.py", "--lr", "0.3", steps=3)
    found = compare_folders(tmp_path / "runs/a", other)
    assert found.verdict == "different" and "NOT recorded: " in str(found.reason)


def test_workers_of_a_loader_are_not_recorded(tmp_path: Path) -> None:
    text = PLAIN.replace("    for step in", (
        "    loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(data, target), 16, num_workers=2,\n"
        "        collate_fn=lambda rows: (model(rows[0][0]), torch.utils.data.default_collate(rows))[1])\n"
        "    for (x, y), step in zip(loader, range(99)):\n"
        "        loss = nn.functional.mse_loss(model(x), y)\n"
        "        optimizer.zero_grad(); loss.backward(); optimizer.step()\n"
        "    for step in"
    ))  # fmt: skip
    run = record(tmp_path, python(), write(tmp_path, text))
    assert Trace.load(run).arrays["num_samples"].tolist() == [16] * 6


COMPILED = "    model = torch.compile(model, backend='eager', fullgraph=True)\n"
SHAPES = {
    "a closure": (
        "        loss = nn.functional.mse_loss(model(data[batch]), target[batch])\n"
        "        optimizer.zero_grad()\n        loss.backward()\n        optimizer.step()\n",
        "        def closure():\n            optimizer.zero_grad()\n"
        "            loss = nn.functional.mse_loss(model(data[batch]), target[batch])\n"
        "            loss.backward()\n            return loss\n"
        "        optimizer.step(closure)\n",
    ),
    "compiled": ("    optimizer = ", f"{COMPILED}    optimizer = "),
    "compiled after the optimizer": (
        "    with torch.no_grad():",
        f"{COMPILED}    with torch.no_grad():",
    ),
    "an average of the weights": ("    with torch", "    import copy; ema = copy.deepcopy(model)\n    with torch"),
    "a model that is never trained": (
        "    with torch",
        "    teacher = nn.Linear(8, 1); other = torch.optim.SGD(teacher.parameters()); teacher(data)\n    with torch",
    ),
    "a schedule that is drawn first": (
        "    with torch",
        "    drawn = torch.optim.SGD(nn.Linear(1, 1).parameters())\n    for _ in 9 * [0]: drawn.step()\n    with torch",
    ),
    "gradients without a module's call": ("mse_loss(model(", "mse_loss(model.forward("),
}


BLIND = ("gradients without a module's call",)
"""`forward` called directly calls the parts one by one."""


@pytest.mark.parametrize("shape", SHAPES)
def test_the_model_is_found(shape: str, tmp_path: Path) -> None:
    old, new = SHAPES[shape]
    assert old in PLAIN
    trace = Trace.load(record(tmp_path, python(), write(tmp_path, PLAIN.replace(old, new))))
    assert list(trace.layout.parameters) == ["0.weight", "0.bias", "2.weight", "2.bias"]
    assert trace.arrays["held"].all() and (trace.arrays["gradient_norm"] > 0).all()
    if shape not in BLIND:
        assert trace.arrays["num_samples"][1:].tolist() == [16] * 5


def test_frozen_parts_belong_to_the_model_and_loose_tensors_to_it_too(tmp_path: Path) -> None:
    frozen = PLAIN.replace("AdamW(model.parameters()", "AdamW(model[2].parameters()")
    trace = Trace.load(record(tmp_path, python(), write(tmp_path, frozen)))
    assert trace.arrays["held"].tolist() == [[False, False, True, True]] * len(trace.layout.steps)
    loose = PLAIN.replace("AdamW(model.parameters()", "AdamW([*model.parameters(), scale]").replace(
        "    optimizer =", "    scale = torch.ones(1, requires_grad=True)\n    optimizer ="
    ).replace("mse_loss(model(", "mse_loss(scale * model(")  # fmt: skip
    found = names(record(tmp_path, python(), write(tmp_path, loose)))
    assert found == [
        "tensor_0",
        "Sequential_0.0.weight",
        "Sequential_0.0.bias",
        "Sequential_0.2.weight",
        "Sequential_0.2.bias",
    ]


GAN = """
import torch
from torch import nn
torch.manual_seed(0)
D, G = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1)), nn.Linear(2, 4)
opt_d, opt_g = torch.optim.Adam(D.parameters()), torch.optim.SGD(G.parameters(), lr=0.1)
for step in range(1000):
    opt_d.zero_grad()
    (D(torch.randn(8, 4)).mean() - D(G(torch.randn(8, 2)).detach()).mean()).backward()
    opt_d.step()
    opt_g.zero_grad()
    D(G(torch.randn(8, 2))).mean().backward()
    opt_g.step()
"""


def test_all_optimizers_that_train_something_of_their_own_are_recorded(tmp_path: Path) -> None:
    write(tmp_path, GAN)
    write(tmp_path, GAN.replace("D(G(torch.randn(8, 2))).mean()", "(-D(G(torch.randn(8, 2)))).mean()"), "other.py")
    commands = f"{python()} train.py", f"{python()} other.py"
    done = trainparity("ab", "--twins", 1, "--steps", 5, "--folder", "runs", *commands, cwd=tmp_path)
    assert "5 optimizer steps of Sequential (49 parameters) with Adam, 5 of Linear with SGD, then" in done.stderr
    assert "NOT recorded" not in done.stderr
    assert Trace.load(tmp_path / "runs/a").layout.optimizer == "Adam"
    assert Trace.load(tmp_path / "runs/a/models/optimizer-2").layout.optimizer == "SGD"
    assert Trace.load(tmp_path / "runs/a/models/optimizer-2/twins/1").layout.twin == 1
    assert done.returncode == 1 and "in the model optimizer-2: loss-or-targets" in done.stdout, done.stdout


OF_PARTS = """
import torch
from torch import nn
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1))
first = torch.optim.SGD(model[0].parameters(), lr=0.1, momentum=0.9)
last = torch.optim.Adam(model[2].parameters(), lr=0.01)
for step in range(1000):
    model.zero_grad()
    model(torch.randn(8, 4)).square().mean().backward()
    first.step()
    last.step()
"""


def test_optimizers_that_are_recorded_as_one_stop_behind_as_many_steps_in_any_order(tmp_path: Path) -> None:
    three = OF_PARTS.replace("last = ", "middle = torch.optim.SGD(model[2].parameters(), lr=0.1)\nlast = ")
    three = three.replace("nn.Linear(8, 1))", "nn.Linear(8, 1))\nhead = nn.Linear(1, 1)")
    three = three.replace("Adam(model[2]", "Adam(head").replace("    model(torch", "    head(model(torch")
    three = three.replace("4)).square()", "4))).square()").replace(
        "    first.step()", "    first.step()\n    middle.step()"
    )
    write(tmp_path, three)
    other = three.replace("    first.step()\n", "").replace("    last.step()", "    last.step()\n    first.step()")
    write(tmp_path, other, "other.py")
    commands = f"{python()} train.py", f"{python()} other.py"
    done = trainparity("ab", "--twins", 1, "--steps", 5, "--folder", "runs", *commands, cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    said = "5 optimizer steps of Sequential (49 parameters) with SGD, 5 of Linear with Adam, then stopped"
    assert done.stderr.count(said) == 2, done.stderr


def test_a_compiled_function_of_one_graph_is_stopped_behind_the_steps_of_all_too(tmp_path: Path) -> None:
    """Dynamo would have to trace a hook that is called where the next iteration begins, and refuses."""
    compiled = OF_PARTS.replace(
        "for step", "made = torch.compile(lambda given: model(given), fullgraph=True, backend='eager')\nfor step"
    ).replace("    model(torch", "    made(torch")
    command = "run", "runs/a", "--twins", 0, "--steps", 5, "--", python(), write(tmp_path, compiled)
    done = trainparity(*command, cwd=tmp_path)
    assert done.returncode == 0 and "SGD, 5 of Sequential with Adam, then stopped" in done.stderr, done.stderr


EVERY_OTHER = "    first.step()\n    if step % 2 == 0: last.step()"


def test_steps_that_others_make_now_and_then_belong_to_the_last_iteration_too(tmp_path: Path) -> None:
    now_and_then = OF_PARTS.replace("    first.step()\n    last.step()", EVERY_OTHER)
    write(tmp_path, now_and_then)
    write(tmp_path, now_and_then.replace(EVERY_OTHER, "\n".join(EVERY_OTHER.split("\n")[::-1])), "other.py")
    commands = f"{python()} train.py", f"{python()} other.py"
    done = trainparity("ab", "--twins", 1, "--steps", 5, "--folder", "runs", *commands, cwd=tmp_path)
    assert done.returncode == 0 and "with SGD, 3 of Sequential with Adam" in done.stderr, done.stdout + done.stderr


@pytest.mark.parametrize(
    ("steps", "code", "says"),
    [
        ("last.step()\n    first.step()", 0, "5 optimizer steps of Sequential (49 parameters) with SGD, 5 of"),
        ("last.step()\n    if step % 2: first.step()", 1, "parameters-not-updated: before its step 1 the other"),
        (
            "first.step()\n    if step < 4: last.step()",
            1,
            "5 optimizer steps of Sequential (49 parameters) with SGD, 4 of",
        ),
    ],
    ids=["other order", "every other step", "no more"],
)
def test_a_stop_is_behind_the_steps_of_all_that_belong_to_one_iteration(
    steps: str, code: int, says: str, tmp_path: Path
) -> None:
    write(tmp_path, OF_PARTS)
    write(tmp_path, OF_PARTS.replace("first.step()\n    last.step()", steps), "other.py")
    commands = f"{python()} train.py", f"{python()} other.py"
    done = trainparity("ab", "--twins", 1, "--steps", 5, "--folder", "runs", *commands, cwd=tmp_path)
    assert done.returncode == code and says in done.stdout + done.stderr, done.stdout + done.stderr


def test_a_generator_called_without_gradients_stays_the_model_that_it_is(tmp_path: Path) -> None:
    first = GAN.replace("opt_d, opt_g", "opt_g, opt_d").replace(
        "torch.optim.Adam(D.parameters()), torch.optim.SGD(G.parameters(), lr=0.1)",
        "torch.optim.SGD(G.parameters(), lr=0.1), torch.optim.Adam(D.parameters())",
    )
    first = first.replace("    (D(torch.randn(8, 4))", "    made = G(torch.randn(8, 2))\n    (D(torch.randn(8, 4))")
    first = first.replace("G(torch.randn(8, 2)).detach()", "made.detach()")
    write(tmp_path, first)
    write(tmp_path, first.replace("    made =", "    with torch.no_grad(): made ="), "other.py")
    commands = f"{python()} train.py", f"{python()} other.py"
    done = trainparity("ab", "--twins", 1, "--steps", 5, "--folder", "runs", *commands, cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert Trace.load(tmp_path / "runs/b").layout.optimizer == "SGD"


def test_an_optimizer_that_is_made_anew_is_recorded_on(tmp_path: Path) -> None:
    anew = PLAIN.replace("        optimizer.step()\n", (
        "        optimizer.step()\n"
        "        if step == 2: optimizer = torch.optim.AdamW(model.parameters())\n"
    ))  # fmt: skip
    trace = Trace.load(record(tmp_path, python(), write(tmp_path, anew)))
    assert trace.layout.steps == list(range(6))
    assert trace.arrays["optimizer_step"].tolist() == [0, 1, 2, 0, 1, 2]


def test_a_recording_that_fails_ends_with_2_and_says_why(tmp_path: Path) -> None:
    missing = "import sys; sys.modules['safetensors'] = None\n" + PLAIN
    done = trainparity("run", "runs/a", "--", sys.executable, write(tmp_path, missing), cwd=tmp_path)
    assert done.returncode == 2 and "can't record this training: ModuleNotFoundError" in done.stderr
    (tmp_path / "torch/optim").mkdir(parents=True)  # stands in for torch, which takes seconds to import
    for name in ("__init__.py", "optim/__init__.py", "optim/optimizer.py"):
        write(tmp_path / "torch", "manual_seed = hash", name)
    missing = "import sys; sys.modules['pydantic'] = None\nimport torch.optim.optimizer"
    done = trainparity("run", "runs/a", "--", sys.executable, write(tmp_path, missing), cwd=tmp_path)
    assert done.returncode == 2 and "pydantic" in done.stderr and "install trainparity there" in done.stderr


def test_a_training_without_modules_is_recorded_from_its_first_backward_pass_on(tmp_path: Path) -> None:
    script = """
import torch
torch.manual_seed(0)
weight = torch.randn(8, 3, requires_grad=True)
unused = torch.optim.SGD([torch.zeros(50, requires_grad=True)], lr=0.1)
optimizer = torch.optim.SGD([weight], lr=0.1)
for batch in torch.randn(9, 16, 8):
    optimizer.zero_grad()
    (batch @ weight).square().mean().backward()
    torch.nn.utils.clip_grad_norm_([weight], 0.1)
    optimizer.step()
"""
    write(tmp_path, script)
    trace = Trace.load(record(tmp_path, python(), "train.py"))
    assert trace.arrays["clip/calls"].tolist() == [1] * 6
    assert trace.arrays["rank/backwards"].flatten().tolist() == [1] * 6


def test_a_trace_that_can_not_be_written_is_no_run(tmp_path: Path) -> None:
    """As on a full disk; the earlier run stays."""
    limit = "import os, resource\nif 'SMALL' in os.environ: resource.setrlimit(resource.RLIMIT_FSIZE, (2000, 2000))\n"
    command = python(), write(tmp_path, limit + PLAIN), "--steps", 6
    run = record(tmp_path, *command)
    kept = (run / "trace.json").read_bytes()
    done = trainparity("run", "runs/a", "--twins", 0, "--steps", 0, "--", *command, cwd=tmp_path, SMALL="yes")
    assert done.returncode == 2, (done.stdout, done.stderr)
    assert "can't record this training: OSError: [Errno 27] File too large" in done.stderr
    assert "Traceback" not in done.stderr
    assert (run / "trace.json").read_bytes() == kept


def test_a_training_that_the_command_leaves_behind_goes_on(tmp_path: Path) -> None:
    """It imports nothing of ours any more, as what it would import it from is gone."""
    text = f"""
import os, sys, time
from pathlib import Path
import torch
if os.fork():
    os._exit(0)
os.setsid()
for descriptor in range(3):  # nobody waits for what it writes
    os.dup2(os.open(os.devnull, os.O_RDWR), descriptor)
deadline = time.time() + 60
while Path(sys.argv[1]).exists() and time.time() < deadline:
    time.sleep(0.1)
{PLAIN.replace("parse_args()", "parse_args([])").replace("1000", "3")}
Path("done").touch()
"""
    script = write(tmp_path, text)
    flag = tmp_path / "waits"
    flag.touch()
    done = trainparity("run", "runs/a", "--twins", 0, "--", python(), script, flag, cwd=tmp_path)
    assert done.returncode == 2 and "no optimizer step was recorded" in done.stderr
    flag.unlink()
    deadline = time.monotonic() + 60
    while not (tmp_path / "done").exists():
        assert time.monotonic() < deadline
        time.sleep(0.1)
