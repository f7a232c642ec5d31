"""Judges training scripts by a zoo's driver and keeps the table: `python benchmarks/zoo.py FOLDER`.

FOLDER holds `zoo.py`, which runs every script of a `cases.py` with its variants, asks `trainparity compare`, and writes
what it found as JSON into $ZOO_JSON; $ZOO_CASES names another `cases.py`. It is run on its own cases and on those of
`loops/`.
"""

import json
import os
import subprocess
import sys
import tempfile
from collections import Counter
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
TABLE = HERE / "results" / "zoo.json"
COLUMNS = ("key", "reference", "variant", "ranks", "want", "grade", "verdict", "cause", "distance_over_floor")


def main(zoo: Path) -> int:
    """Run the driver on both lists of cases; return its worst exit code, 2 where there is no driver."""
    if not (zoo / "zoo.py").exists():
        print(f"{zoo} holds no zoo.py; give the folder: make zoo ZOO=folder", file=sys.stderr)
        return 2
    codes, rows = [], []
    with tempfile.TemporaryDirectory(prefix="zoo-") as scratch:
        for place, cases in {"public": zoo / "cases.py", "loops": HERE / "loops" / "cases.py"}.items():
            answer = Path(scratch) / f"{place}.json"
            environment = {"ZOO_CASES": str(cases), "ZOO_JSON": str(answer), "ZOO_HOME": f"{scratch}/{place}"}
            codes.append(subprocess.run([sys.executable, zoo / "zoo.py"], env=os.environ | environment).returncode)
            rows += json.loads(answer.read_text(encoding="utf-8")) if answer.exists() else []
    keep(rows)
    return max(codes)


def keep(rows: list[dict[str, Any]]) -> None:
    """Write the pairs with the date and the counts."""
    now = datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC")
    counts = dict(sorted(Counter(row["grade"] for row in rows).items()))
    pairs = [{name: row[name] for name in COLUMNS} for row in rows]
    content = {"date": now, "torch": version("torch"), "device": "cpu", "counts": counts, "pairs": pairs}
    TABLE.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
    print(f"{len(pairs)} pairs: {', '.join(f'{count} {grade}' for grade, count in counts.items())}; {TABLE}")


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]).resolve()) if len(sys.argv) == 2 else 2)
