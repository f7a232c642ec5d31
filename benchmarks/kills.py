"""Kill runs at random moments and count what is left: `python benchmarks/kills.py`.

Each trial copies a project with a trained reference, starts a configuration under DVC and sends a signal to one of its
processes at a random moment. Then: does a process live ten seconds later, is an output half written, does the next run
end with the bits of an uninterrupted one, is anything temporary left after it? torchrun's agent is the stage itself.
"""

import json
import random
import signal
import tempfile
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime
from itertools import product
from pathlib import Path
from typing import Annotated, Any

import typer
from kill_trial import CONFIGS, FAULTS, Home, trial
from results_file import save
from rich.console import Console

from trainparity.launch.containers import look

ROOT = Path(__file__).resolve().parents[1]
LOG = ROOT / ".trainparity" / "kills.jsonl"
"""A line for each trial that is done; another call with the same seed continues behind them."""
SIGNALS = (signal.SIGKILL, signal.SIGTERM)
TARGETS = ("dvc", "stage", "rank", "child of a rank")


def main(
    moments: Annotated[int, typer.Option(min=1, help="Random moments for each configuration.")] = 30,
    seed: Annotated[int, typer.Option(help="Of the moments, and of which rank or worker is hit.")] = 0,
    only: Annotated[list[str] | None, typer.Option(help=f"Of {', '.join(CONFIGS)}.")] = None,
    fresh: Annotated[
        bool, typer.Option(help="Repeat trials that an earlier call has done: of other code, say.")
    ] = False,
) -> None:
    """Kill each configuration at random moments; exit code 1 if anything was left, half written or different."""
    console = Console(highlight=False)
    names = only or list(CONFIGS)
    missing = look().missing if "container" in names else None
    skipped = {"container": missing} if missing else {}
    names = [name for name in names if name not in skipped]
    LOG.parent.mkdir(exist_ok=True)
    if fresh:
        LOG.unlink(missing_ok=True)
    done = {(line["seed"], line["name"], line["number"]): line for line in _lines()}
    # Beside the clone's compose.yaml, so that a container sees the folder.
    with tempfile.TemporaryDirectory(prefix="kills-", dir=LOG.parent) as folder:
        home: Home | None = None
        for name, number in ((name, number) for number in range(moments) for name in names):
            if (seed, name, number) in done:
                continue
            home = home or Home(Path(folder) / "home", names)
            chance = random.Random(f"{seed} {name} {number}")
            target, kind = _hits(number)
            moment = chance.uniform(0, home.seconds[name])
            faults = trial(home, Path(folder) / f"{name}-{number}", name, moment, target, kind, chance)
            line = {"seed": seed, "name": name, "number": number, "target": target, "signal": kind.name}
            when = datetime.now(UTC).isoformat(timespec="seconds")
            done[seed, name, number] = line | {"moment_s": round(moment, 2), "faults": faults, "date": when}
            with LOG.open("a", encoding="utf-8") as log:
                log.write(json.dumps(done[seed, name, number]) + "\n")
            said = ", ".join(faults) or "fine"
            console.print(f"{number + 1}/{moments} {name}: {kind.name} to the {target} after {moment:.1f} s: {said}")
    trials = {name: [line for (of, whose, _), line in done.items() if (of, whose) == (seed, name)] for name in names}
    counts = {name: _count(lines) for name, lines in trials.items()}  # those of a longer call too
    since = min(line["date"] for lines in trials.values() for line in lines)
    path = save("kills", {"since": since, "seed": seed, "configurations": counts, "skipped": skipped})
    console.print(f"{sum(found['trials'] for found in counts.values())} kills, counted in {path}")
    raise typer.Exit(1 if any(found[fault] for found in counts.values() for fault in FAULTS) else 0)


def _hits(number: int) -> tuple[str, signal.Signals]:
    """Return whom a trial hits, and how: all pairs in turn."""
    pairs = list(product(TARGETS, SIGNALS))
    return pairs[number % len(pairs)]


def _lines() -> Iterator[dict[str, Any]]:
    if LOG.exists():
        yield from map(json.loads, LOG.read_text(encoding="utf-8").splitlines())


def _count(lines: list[dict[str, Any]]) -> dict[str, int]:
    found = Counter(fault for line in lines for fault in line["faults"])
    hits = Counter(f"{line['signal']} to the {line['target']}" for line in lines)
    return {"trials": len(lines), **{fault: found[fault] for fault in FAULTS}, **dict(sorted(hits.items()))}


if __name__ == "__main__":
    typer.run(main)
