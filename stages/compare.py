"""Stage `compare`: judge every pair of params.yaml by the noise floor of its reference."""

import sys
from pathlib import Path

from trainparity import params
from trainparity.exits import exit_code
from trainparity.parity.pairs import compare_pairs


def main() -> None:
    settings = params.load(Path("params.yaml"))
    report = compare_pairs(settings, Path("runs"), Path("reports"))
    for name, pair in report.pairs.items():
        print(f"{name}: {pair.verdict}" + (f": {pair.reason}" if pair.reason else ""))


if __name__ == "__main__":
    sys.exit(exit_code(main))
