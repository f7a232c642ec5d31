"""What to run the day a GPU is at hand, in pieces that can be interrupted: `make gpu`.

The most valuable piece comes first. A piece that is done is not repeated; one that is stopped goes on where it stood,
as the pipeline does. Nothing is downloaded: packages that the machine lacks come out of an archive that
`make gpu-packages` packs elsewhere, and the data are those that the package brings, or random numbers.
"""

import argparse
import os
import signal
import subprocess
import sys
import tarfile
import time
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

import torch

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = Path(".gpu/packages.tar.gz")
RESULTS = Path("benchmarks/results")


class Piece(NamedTuple):
    """One command of the day."""

    name: str
    command: list[str]
    """Arguments to `python`."""
    keeps: tuple[str, str] | None = None
    """What it leaves, and the name of that in benchmarks/results."""


CUDA_TESTS = [
    str(path) for path in sorted((ROOT / "tests").rglob("test_*.py")) if "pytest.mark.cuda" in path.read_text()
]
"""Not all of `tests`: some import what such a machine lacks."""

PIECES = [
    Piece("cuda-tests", ["-m", "pytest", "-q", "-m", "cuda", *CUDA_TESTS]),
    Piece("default-pipeline", ["-m", "trainparity.cli", "repro"], ("reports/summary.json", "gpu-summary.json")),
    Piece("offload", ["benchmarks/offload.py"]),
    Piece("where-time-goes", ["benchmarks/where_time_goes.py"]),
    Piece("study-e", ["-m", "trainparity.cli", "studies", "cpu-offload", "--save", "benchmarks/results/studies"]),
    Piece(
        "study-b", ["-m", "trainparity.cli", "studies", "ddp-vs-accumulation", "--save", "benchmarks/results/studies"]
    ),
    Piece("recorder", ["benchmarks/recorder.py"]),
    Piece("step-time", ["benchmarks/step_time.py"]),
]
REHEARSAL = [
    Piece(
        "offload",
        ["benchmarks/offload.py", "--scale", "smoke", "--batch", "2", "--precisions", "fp32", "--no-keep"],
    ),
    Piece("where-time-goes", ["benchmarks/where_time_goes.py", "--smoke"]),
]


def main() -> int:
    """Run what is left, as far as the time goes; 0: all is done, 3: something is left or failed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=9.0, help="for this call; the rest is for the next")
    parser.add_argument("--only", action="append", metavar="PIECE", help="of: " + ", ".join(p.name for p in PIECES))
    parser.add_argument("--again", action="store_true", help="repeat pieces that are done")
    parser.add_argument("--rehearse", action="store_true", help="small models on whatever is here; nothing is kept")
    parser.add_argument("--state", type=Path, default=Path(".gpu"), help="logs and marks of what is done")
    options = parser.parse_args()
    os.chdir(ROOT)
    pieces = [p for p in (REHEARSAL if options.rehearse else PIECES) if p.name in (options.only or [p.name])]
    if not pieces:
        parser.error(f"--only {', '.join(options.only)}: no such piece")
    if not options.rehearse and not torch.cuda.is_available():
        parser.error("torch finds no NVIDIA GPU here; --rehearse tries what can be tried without")
    until = time.monotonic() + 60 * options.minutes
    outcomes = {}
    for piece in pieces:
        mark = options.state / "done" / piece.name
        if mark.exists() and not options.again:
            outcomes[piece.name] = "done before"
            continue
        left_s = until - time.monotonic()
        outcomes[piece.name] = run(piece, left_s, options.state) if left_s > 5 else "left for the next call"
        if outcomes[piece.name] == "done":
            mark.parent.mkdir(parents=True, exist_ok=True)
            mark.touch()
        print(f"{piece.name}: {outcomes[piece.name]}", flush=True)
    return 0 if all(outcome.startswith("done") for outcome in outcomes.values()) else 3


def run(piece: Piece, seconds: float, state: Path) -> str:
    """Run a piece for so long at most; return what became of it."""
    log = state / "logs" / f"{piece.name}.txt"
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("w") as output:
        child = subprocess.Popen(
            [sys.executable, *piece.command], stdout=output, stderr=subprocess.STDOUT, env=environment(),
            start_new_session=True,
        )  # fmt: skip
        try:
            code = child.wait(timeout=seconds)
        except subprocess.TimeoutExpired:
            os.killpg(child.pid, signal.SIGTERM)  # it writes its checkpoints
            child.wait()
            return f"stopped after {seconds:.0f} s; the next call goes on ({log})"
    if code:
        return f"failed with exit code {code}: see {log}"
    if piece.keeps:
        left, name = piece.keeps
        (RESULTS / name).write_bytes(Path(left).read_bytes())
    return "done"


def environment() -> dict[str, str]:
    """Return the environment of a piece: our source, and the packed packages where the machine lacks them."""
    path = [str(ROOT / "src"), str(ROOT)]
    if PACKAGES.exists() and not find_spec("dvc"):
        folder = PACKAGES.parent / "packages"
        if not folder.exists():
            unfinished = folder.with_name("packages.unfinished")
            with tarfile.open(PACKAGES) as archive:
                archive.extractall(unfinished, filter="data")
            unfinished.rename(folder)
        path.append(str(folder.resolve()))
    if not (ROOT / ".git").exists():  # DVC then asks for no repository
        for project in (ROOT, ROOT / "studies"):
            (project / ".dvc" / "config.local").write_text("[core]\n    no_scm = true\n")
    return os.environ | {"PYTHONPATH": os.pathsep.join([*path, os.environ.get("PYTHONPATH", "")]).rstrip(os.pathsep)}


if __name__ == "__main__":
    sys.exit(main())
