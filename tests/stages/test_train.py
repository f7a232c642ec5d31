"""The stage `train@<configuration>`, called by hand."""

from pathlib import Path

import pytest
import yaml

from tests.pipeline.test_plan import CONTENT
from trainparity.stages.train import main
from trainparity.validation import ParamsError


@pytest.mark.parametrize("name", ["nope", "../../x", ""])
def test_a_name_of_no_configuration_is_refused(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("params.yaml").write_text(yaml.safe_dump(CONTENT))
    with pytest.raises(ParamsError, match=r"^params\.yaml: configs: '.*' is not one of compiled, cpu, "):
        main(name)
