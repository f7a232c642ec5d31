"""Stage `prepare`: fetch the dataset and write it as checksummed tensor files."""

import sys
from pathlib import Path

from trainparity import params
from trainparity.exits import exit_code
from trainparity.pipeline.prepare import prepare


def main() -> None:
    settings = params.load(Path("params.yaml"))
    manifest = prepare(settings, Path("data/prepared"), Path(".trainparity/downloads"))
    print(f"{manifest.dataset}: {manifest.samples} samples from {manifest.source}")


if __name__ == "__main__":
    sys.exit(exit_code(main))
