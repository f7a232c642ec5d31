"""The images' workflow: its own lines push, name and find images of next to nothing in a registry of here."""

import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from tests.support.docker_server import serving
from trainparity import __version__

pytestmark = pytest.mark.docker

ROOT = Path(__file__).parents[2]
JOBS = yaml.safe_load((ROOT / ".github/workflows/images.yml").read_text())["jobs"]
VERSION = "src/trainparity/__init__.py"
IMAGES = "ARG BASE_IMAGE={base}\nFROM ${{BASE_IMAGE}} AS cpu\nCMD [cpu]\nFROM ${{BASE_IMAGE}} AS cuda\nCMD [cuda]\n"
RUN = {"GITHUB_SERVER_URL": "https://github.com", "GITHUB_REPOSITORY": "own/er", "GITHUB_RUN_ID": "7"}
ELSEWHERE = (" --sbom=true", 'cosign sign --yes --recursive "$IMAGE@$digest"\n')
"""What needs a network: Docker Hub has the scanner, a service signs."""
NOT_DOCKERS = (' --provenance="mode=max,builder-id=$run"', "push-by-digest=true,name-canonical=true,")
"""What Docker's own builder refuses."""


class Clone:
    """A clone with small images, which runs the workflow's steps as GitHub does."""

    def __init__(self, folder: Path, address: str, builder: str) -> None:
        self.folder, self.base, self.name = folder, f"{address}/base:1", f"{address}/trainparity"
        self.environment = {"IMAGE": self.name, "GITHUB_ENV": str(folder / "env"), "BUILDX_BUILDER": builder} | RUN
        self.left_out = ELSEWHERE + (NOT_DOCKERS if builder == "default" else ())
        (folder / VERSION).parent.mkdir(parents=True)
        shutil.copy(ROOT / VERSION, folder / VERSION)
        shutil.copytree(ROOT / "docker", folder / "docker")
        (folder / "docker/Dockerfile").write_text(IMAGES.format(base=self.base))

    def run(self, lines: str, **variables: str) -> "subprocess.CompletedProcess[str]":
        known = os.environ | self.environment | variables
        command = ["bash", "-e", "-c", lines]
        return subprocess.run(command, cwd=self.folder, env=known, capture_output=True, text=True, check=False)

    def step(self, job: str, begins: str, **variables: str) -> "subprocess.CompletedProcess[str]":
        [lines] = [step["run"] for step in JOBS[job]["steps"] if step.get("name", "").startswith(begins)]
        for words in self.left_out:
            lines = lines.replace(words, "")
        return self.run(lines, **variables)


@pytest.fixture(scope="module")
def builder() -> Iterator[str]:
    """A builder in a container, as the workflow has it, where its image can be had; else Docker's own."""
    name = f"trainparity-test-{os.getpid()}"
    options = ["--name", name, "--driver", "docker-container", "--driver-opt", "network=host", "--bootstrap"]
    made = subprocess.run(["docker", "buildx", "create", *options], capture_output=True, check=False)
    yield "default" if made.returncode else name
    subprocess.run(["docker", "buildx", "rm", "--force", name], capture_output=True, check=False)


@pytest.fixture
def clone(builder: str, tmp_path: Path) -> Iterator[Clone]:
    with serving(Path(__file__).parent / "registry", port=5000, state="/var/lib/images") as (_, url):
        address = url.removeprefix("http://").replace("127.0.0.1", "localhost")
        clone = Clone(tmp_path / "clone", address, builder)
        base = f"docker build --provenance=false --push --tag {clone.base} --file - ."
        assert (made := clone.run(f"echo 'FROM scratch\nCOPY src /' | {base}")).returncode == 0, made.stderr
        yield clone
        clone.run(f"docker image ls --quiet '{address}/*' | xargs docker image rm --force")


def test_a_release_is_one_name_for_the_images_of_both_machines(clone: Clone) -> None:
    assert (found := clone.step("build", "the base")).returncode == 0, found.stderr
    base = dict([(clone.folder / "env").read_text().strip().split("=", 1)])
    assert base["BASE_IMAGE"].startswith(f"{clone.base}@sha256:") and len(base["BASE_IMAGE"].split()) == 1
    for architecture, platform in (("X64", "linux/amd64"), ("ARM64", "linux/arm64")):
        machine = {"RUNNER_ARCH": architecture, "DOCKER_DEFAULT_PLATFORM": platform}
        clone.run("mv digests others")
        pushed = clone.step("build", "push", **machine, **base)
        assert pushed.returncode == 0, pushed.stderr
    clone.run("mv others/* digests")  # as `merge-multiple` does

    other = clone.step("publish", "one name", TAG="v9.9.9")
    assert (other.returncode, other.stderr) == (1, f"the release is v9.9.9, the code {__version__}\n")
    published = clone.step("publish", "one name", TAG=f"v{__version__}")
    assert published.returncode == 0, published.stderr
    for kind in ("cpu", "cuda"):
        name = f"{clone.name}:{__version__}-{kind}"
        index = json.loads(clone.run(f"docker buildx imagetools inspect --raw {name}").stdout)
        held = {entry["platform"]["architecture"] for entry in index["manifests"]}
        assert {"amd64", "arm64"} <= held <= {"amd64", "arm64", "unknown"}
        assert ("unknown" in held) == (clone.left_out == ELSEWHERE)  # where its provenance is
        proven = clone.run(f"docker buildx imagetools inspect {name} --format '{{{{json .Provenance}}}}'").stdout
        assert ("https://github.com/own/er/actions/runs/7" in proven) == ("unknown" in held), proven
        assert (pulled := clone.run(f"docker pull {name}")).returncode == 0, pulled.stderr
        config = json.loads(clone.run(f"docker image inspect {name}").stdout)[0]["Config"]
        assert config["Labels"]["org.opencontainers.image.base.digest"] == base["BASE_IMAGE"].partition("@")[2]
        assert config["Labels"]["org.opencontainers.image.title"] == f"trainparity {kind}" and kind in config["Cmd"][-1]
