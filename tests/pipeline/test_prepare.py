"""What `prepare` refuses."""

from pathlib import Path

import pytest

from tests.pipeline.test_plan import CONTENT
from trainparity import params
from trainparity.pipeline.prepare import prepare
from trainparity.validation import ParamsError


def test_a_file_of_ones_own_data_that_is_not_there_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    content = CONTENT | {"dataset": {"name": "own", "files": ["measurements.csv"]}}
    settings = params.parse(content, Path("params.yaml"))
    with pytest.raises(ParamsError, match=r"^params\.yaml: dataset\.files: measurements\.csv: no such file or folder$"):
        prepare(settings, Path("data/prepared"), Path("downloads"))


def test_a_batch_of_more_samples_than_there_are_is_named_before_anything_trains(tmp_path: Path) -> None:
    settings = params.parse(CONTENT | {"dataset": {"name": "digits", "limit": 50}}, Path("params.yaml"))
    said = r"^p\.yaml: train\.global_batch_size: 64, but there are 50 samples to train on; allowed: at most 50$"
    with pytest.raises(ParamsError, match=said):
        prepare(settings, tmp_path / "prepared", tmp_path / "downloads", Path("p.yaml"))
