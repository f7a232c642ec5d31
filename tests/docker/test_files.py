"""docker/ and compose.yaml against what they repeat; no engine is needed."""

import re
from pathlib import Path

import pytest
import torch
import yaml

ROOT = Path(__file__).parents[2]


def test_the_images_labels_say_the_locked_versions() -> None:
    dockerfile = (ROOT / "docker/Dockerfile").read_text()
    [locked] = re.findall(r"^torch==(\S+)", (ROOT / "requirements.lock").read_text(), re.MULTILINE)
    assert f"ARG TORCH_VERSION={locked}\n" in dockerfile
    if not torch.version.cuda:
        pytest.skip("this machine's torch is built without CUDA")
    assert f"ARG CUDA_VERSION={torch.version.cuda}\n" in dockerfile


def test_every_service_is_locked_down_and_only_prepare_has_a_network() -> None:
    services = yaml.safe_load((ROOT / "compose.yaml").read_text())["services"]
    for name, service in services.items():
        assert service["cap_drop"] == ["ALL"] and service["read_only"] is True, name
        if service.get("profiles") == ["multinode"]:
            assert service["networks"] == ["nodes"], name
        else:
            assert service["network_mode"] == ("bridge" if name == "prepare" else "none"), name
