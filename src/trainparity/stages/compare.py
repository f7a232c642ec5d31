"""Stage `compare`: judge every pair of params.yaml by the noise floor of its reference."""

from pathlib import Path

from trainparity import params
from trainparity.parity.pairs import compare_pairs


def main() -> None:
    settings = params.load(Path("params.yaml"))
    report = compare_pairs(settings, Path("runs"), Path("reports"))
    for name, pair in report.pairs.items():
        print(f"{name}: {pair.verdict}" + (f": {pair.reason}" if pair.reason else ""))
