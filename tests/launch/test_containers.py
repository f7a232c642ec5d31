"""What is decided about containers before one is started; tests/docker starts them."""

from pathlib import Path

import pytest

from trainparity import params as parameters
from trainparity.environment import detect
from trainparity.errors import UserError
from trainparity.launch import containers, engine

ROOT = Path(__file__).parents[2]


@pytest.fixture
def nowhere(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOCKER_HOST", "unix:///nowhere.sock")


def test_without_an_engine_it_says_what_to_do(nowhere: None) -> None:
    with pytest.raises(UserError, match=r"no Docker engine answers .*: start it, or set `runtime: host`"):
        engine.connect()
    found = containers.look()
    assert found.image is None and found.missing and "no Docker engine answers" in found.missing


def test_a_stage_on_the_host_never_looks_for_an_engine(
    nowhere: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "params.yaml").write_text((ROOT / "params.yaml").read_text())
    monkeypatch.chdir(tmp_path)
    ran: list[str] = []
    containers.here_or_contained(lambda: ran.append("here"), containers.image_of_engine)
    assert ran == ["here"]
    text = (ROOT / "params.yaml").read_text().replace("runtime: host", "runtime: docker")
    (tmp_path / "params.yaml").write_text(text)
    with pytest.raises(UserError, match="no Docker engine answers"):
        containers.here_or_contained(lambda: ran.append("here"), containers.image_of_engine)
    assert ran == ["here"]


def test_a_configuration_runs_in_its_devices_image_and_apples_gpu_on_the_host(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = parameters.load(ROOT / "params.yaml")
    monkeypatch.chdir(tmp_path)
    detect().write(Path("runs/environment.json"))
    assert containers.image_of(settings.configs["cpu"], settings) == "cpu"
    assert containers.image_of(settings.configs["mps"], settings) is None


def test_a_limit_of_memory_that_is_no_size_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    assert engine.memory() == "16g"
    monkeypatch.setenv("TRAINPARITY_MEMORY", "lots")
    with pytest.raises(UserError, match="TRAINPARITY_MEMORY: 'lots' is not a size such as 16g"):
        engine.memory()
