"""Where benchmarks write, and what stands above their figures: machine, versions, date."""

import json
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch
from pairs import Target

from trainparity.environment import detect
from trainparity.records.files import write_text

RESULTS = Path(__file__).resolve().parent / "results"


def measured_before(benchmark: str, what: str, method: str) -> dict[str, Any]:
    """Return figures that stand in the results of this machine, with the same versions and by the same method.

    Args:
        benchmark: Its name.
        what: The key under which its figures stand, by name.
        method: What every figure of today's method holds: others are left out.
    """
    environment = detect()
    path = _path(benchmark, environment.main_device)
    content = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    if content.get("fingerprint") != environment.fingerprint:
        return {}
    return {name: {"date": content["date"]} | one for name, one in content[what].items() if method in one}


def save(benchmark: str, figures: dict[str, Any], targets: Sequence[Target] = ()) -> Path:
    """Write figures as `results/<benchmark>-<device>.json`, under the facts that they hold for; return the path.

    `targets` are those that `benchmarks/page.py` puts on its page.
    """
    environment = detect()
    device = environment.main_device
    facts = {
        "benchmark": benchmark,
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "device": device,
        "cores": environment.cores,
        "threads": torch.get_num_threads(),
        "python": environment.python,
        "torch": environment.torch,
        "fingerprint": environment.fingerprint,
    }
    path = _path(benchmark, device)
    held = {"targets": [target.record() for target in targets]} if targets else {}
    write_text(path, json.dumps(facts | figures | held, indent=1) + "\n")
    return path


def _path(benchmark: str, device: str) -> Path:
    return RESULTS / f"{benchmark}-{as_file_name(device)}.json"


def as_file_name(device: str) -> str:
    """Return a machine's name as a part of files' names."""
    return "-".join(device.lower().replace("(r)", "").split())
