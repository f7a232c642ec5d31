"""Stage `prepare`: fetch the dataset and write it as checksummed tensor files."""

from pathlib import Path

from trainparity import params
from trainparity.pipeline.prepare import prepare


def main() -> None:
    settings = params.load(Path("params.yaml"))
    manifest = prepare(settings, Path("data/prepared"), Path(".trainparity/downloads"))
    print(f"{manifest.dataset}: {manifest.samples} samples from {manifest.source}")
