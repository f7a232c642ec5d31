"""Stage `prepare`: fetch the dataset and write it as checksummed tensor files."""

from pathlib import Path

from trainparity import params
from trainparity.observed import Observed
from trainparity.pipeline import reading
from trainparity.pipeline.prepare import prepare
from trainparity.records.files_read import NAME, FilesRead
from trainparity.records.numbers import counted


def main() -> None:
    settings, out, downloads = params.load(Path("params.yaml")), Path("data/prepared"), Path(".trainparity/downloads")
    observed = Observed([out, *map(Path, settings.dataset.files_read)])  # a workload's own data may come from others
    manifest = prepare(settings, out, downloads)
    FilesRead(files=observed.files()).write(reading.RECORDS / "prepare" / NAME)
    print(f"{manifest.dataset}: {counted(manifest.samples, 'sample')} from {manifest.source}")
