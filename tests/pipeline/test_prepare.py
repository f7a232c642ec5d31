"""What `prepare` refuses before it reads anything."""

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
