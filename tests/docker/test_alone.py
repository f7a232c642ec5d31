"""The images on a folder that is no clone, as somebody uses them who pulled one."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.docker_project import STRANGER
from tests.support.project import edit
from trainparity import __version__

pytestmark = [pytest.mark.docker, pytest.mark.usefixtures("images")]

ROOT = Path(__file__).parents[2]
UID = os.getuid() or STRANGER
PUBLISHED = f"ghcr.io/trainparity/trainparity:{__version__}-"

TRAIN = """
import sys
import torch

parts = 4 if "--accumulate" in sys.argv else 1
torch.manual_seed(0)
model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(12):
    for inputs in torch.randn(8, 4).chunk(parts):
        (model(inputs).square().mean() / parts).backward()
    optimizer.step()
    optimizer.zero_grad()
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A stranger's folder with one file of Python."""
    shutil.copy(ROOT / "src/trainparity/starter/workload.py", tmp_path / "workload.py")
    for path in (tmp_path, tmp_path / "workload.py"):
        os.chown(path, UID, UID)
    return tmp_path


def run(folder: Path, *command: str, image: str = "cpu") -> subprocess.CompletedProcess[str]:
    options = ["--rm", f"--user={UID}:{UID}", f"--volume={folder}:/work", "--workdir=/work"]
    whole = ["docker", "run", *options, f"trainparity:{image}", *command]
    return subprocess.run(whole, capture_output=True, text=True, check=False)


def block(page: str, word: str) -> str:
    """Return the block of a page's commands that has a word, with the images of here in place of the published ones."""
    blocks = re.findall(r"```console\n(.*?)```", (ROOT / page).read_text(), re.DOTALL)
    [found] = [text for text in blocks if word in text]
    found = found.replace("$(id -u):$(id -g)", f"{UID}:{UID}")
    assert PUBLISHED in found
    return found.replace(PUBLISHED, "trainparity:")


@pytest.mark.parametrize("page", ["README.md", "docs/containers.md"])
def test_the_commands_that_are_shown_work_on_a_folder_with_scripts_alone(page: str, folder: Path) -> None:
    (folder / "train.py").write_text(TRAIN)
    commands = ["bash", "-euxo", "pipefail", "-c", block(page, "contained()")]
    done = subprocess.run(commands, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    for name in re.findall(r"^contained (\w+)", block(page, "contained()"), re.MULTILINE):
        assert f"+ contained {name}" in done.stderr
    assert done.stdout.count("equivalent") + done.stdout.count("bitwise") >= 1
    assert {path.stat().st_uid for path in folder.rglob("*")} <= {UID, os.getuid()}


def test_a_model_is_compiled_as_anybody(folder: Path) -> None:
    done = run(folder, "trainparity", "check", "workload:Classifier", "--against", "compiled")
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_default_command_says_what_there_is(folder: Path) -> None:
    for image in ("cpu", "cuda"):
        done = run(folder, image=image)
        assert done.returncode == 0 and "check" in done.stdout, done.stderr


def test_a_clone_comes_before_the_images_own_code(folder: Path) -> None:
    where = ("python", "-c", "import trainparity; print(trainparity.__file__)")
    assert run(folder, *where).stdout.startswith("/opt/venv/")
    (folder / "src/trainparity").mkdir(parents=True)
    (folder / "src/trainparity/__init__.py").touch()
    assert run(folder, *where).stdout.strip() == "/work/src/trainparity/__init__.py"
    mounted = [f"--user={UID}:{UID}", f"--volume={folder}:/workspace", "--workdir=/tmp"]
    elsewhere = ["docker", "run", "--rm", *mounted, "trainparity:cpu", *where]
    assert subprocess.check_output(elsewhere, text=True).strip() == "/workspace/src/trainparity/__init__.py"


@pytest.mark.parametrize("image", ["cpu", "cuda"])
def test_an_image_lists_its_contents_as_cyclonedx(image: str, folder: Path) -> None:
    listed = json.loads(run(folder, "cat", "/etc/trainparity/sbom.cdx.json", image=image).stdout)
    assert (listed["bomFormat"], listed["specVersion"]) == ("CycloneDX", "1.6")
    held = {component["purl"].partition("@")[0]: component["version"] for component in listed["components"]}
    lock = (ROOT / "docker/environment/requirements.lock").read_text()
    for name in ("torch", "dvc", "pydantic"):
        assert held[f"pkg:pypi/{name}"].partition("+")[0] in re.findall(rf"^{name}==(\S+)", lock, re.MULTILINE)
    assert {"pkg:deb/debian/g%2B%2B", "pkg:deb/debian/tini", "pkg:generic/python"} <= set(held)
    assert ("pkg:pypi/nvidia-cudnn-cu13" in held) == (image == "cuda")


def test_the_cpu_image_is_small() -> None:
    size = subprocess.check_output(["docker", "image", "inspect", "--format={{.Size}}", "trainparity:cpu"], text=True)
    assert int(size) <= 2.45e9


@pytest.mark.parametrize("call", ["cudnn.version()", "cuda.is_built()"])
def test_asking_for_cuda_in_the_cpu_image_is_no_crash(call: str, folder: Path) -> None:
    code = f"import torch\ntry: torch.backends.{call}\nexcept RuntimeError: pass\nprint(torch.cuda.is_available())"
    done = run(folder, "python", "-c", code)
    assert (done.returncode, done.stdout) == (0, "False\n"), done.stderr


def test_stages_of_a_project_of_ones_own_run_in_the_image(folder: Path) -> None:
    own = {**os.environ, "CPU_IMAGE": "trainparity:cpu"}

    def said(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", *arguments]
        return subprocess.run(command, cwd=folder, env=own | environment, capture_output=True, text=True, check=False)

    assert said("trainparity.cli", "init", "--force").returncode == 0
    (folder / "runs").mkdir()
    edit(folder, "runtime", value="docker")
    edit(folder, "train", "max_steps", value=4)
    for stage in (["validate"], ["probe"], ["prepare"], ["reference"], ["train", "gradaccum"]):
        for path in folder.rglob("*"):  # what root made
            os.chown(path, UID, UID)
        done = said("trainparity.stages", *stage)
        assert done.returncode == 0, done.stdout + done.stderr
    status = json.loads((folder / "runs/state/gradaccum/status.json").read_text())
    assert status["status"] == "trained", status
    assert (folder / "runs/state/gradaccum").stat().st_uid == UID
    nowhere = said("trainparity.stages", "train", "gradaccum", CPU_IMAGE="localhost:9/none:1")
    assert nowhere.returncode == 2
    assert "the image localhost:9/none:1 is not here and can't be pulled" in nowhere.stderr
