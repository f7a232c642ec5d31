"""What the images hold and what runs in them as whom."""

import json
import time
from contextlib import suppress

import pytest

import docker
from tests.support.docker_project import Project
from trainparity.launch.engine import connect
from trainparity.launch.images import current

pytestmark = pytest.mark.docker

SCAN = r"""
import json, os, pathlib, re, stat
found = {"privileged": [], "writable": [], "keys": []}
for folder, folders, files in os.walk("/"):
    folders[:] = [f for f in folders if os.path.join(folder, f) not in ("/proc", "/sys", "/dev", "/tmp", "/caches",
                                                                        "/home/trainparity", "/workspace")]
    for name in folders + files:
        path = os.path.join(folder, name)
        facts = os.lstat(path)
        if stat.S_ISREG(facts.st_mode) and facts.st_mode & (stat.S_ISUID | stat.S_ISGID):
            found["privileged"].append(path)
        if not stat.S_ISLNK(facts.st_mode) and os.access(path, os.W_OK):
            found["writable"].append(path)
        if name in ("id_rsa", "id_ed25519", ".netrc", ".pypirc") or path.endswith(".aws/credentials"):
            found["keys"].append(path)
        if name == "pip.conf" and re.search("://[^/ ]+@", pathlib.Path(path).read_text()):  # a base image may bring one
            found["keys"].append(path)
found["user"] = [os.getuid(), os.getgid()]
found["groups"] = os.getgroups()
print(json.dumps(found))
"""


@pytest.mark.parametrize("kind", ["cpu", "cuda"])
def test_an_image_gives_its_user_nothing_to_gain(kind: str) -> None:
    client = connect()
    if not current(client, kind):  # type: ignore[arg-type]
        pytest.skip(f"docker: the image trainparity:{kind} is missing or stale; `make images` builds it")
    image = client.images.get(f"trainparity:{kind}")
    assert image.attrs["Config"]["User"] == "1000:1000"
    # Plainly started, without what compose.yaml takes away besides.
    output = client.containers.run(image.id, ["python", "-c", SCAN], remove=True, network_mode="none")
    found = json.loads(output)
    assert found["user"] == [1000, 1000] and found["groups"] == [1000]
    assert found["privileged"] == []  # no setuid or setgid file: nobody becomes somebody else
    assert [path for path in found["writable"] if not path.startswith(("/var/tmp", "/run/lock"))] == []
    assert found["keys"] == []
    secrets = [line for line in image.history() if any(word in line["CreatedBy"] for word in ("PASSWORD", "TOKEN"))]
    assert secrets == []


@pytest.mark.parametrize("kind", ["cpu", "cuda"])
def test_nothing_of_the_build_is_left_where_others_write(kind: str, images: None) -> None:
    """Root's compiled code there could not be locked by whoever compiles the same."""
    find = ["find", "/caches", "/tmp", "/home", "/var/tmp", "-type", "f"]
    assert docker.from_env().containers.run(f"trainparity:{kind}", find, remove=True, network_mode="none") == b""


def test_every_process_of_a_run_is_the_callers(project: Project) -> None:
    running = project.start("run", "--rm", "train-cpu", "ddp")
    seen: set[tuple[str, str]] = set()
    while running.poll() is None:
        seen |= processes(project)
        time.sleep(0.2)
    assert running.returncode == 0
    assert any("trainparity.training.worker" in command for _, command in seen), seen
    assert {user for user, _ in seen} == {str(project.uid)}


def processes(project: Project) -> set[tuple[str, str]]:
    """Return (uid, command) of all processes in the project's containers."""
    found = set()
    filters = {"label": f"com.docker.compose.project={project.name}"}
    for container in docker.from_env().containers.list(filters=filters, ignore_removed=True):
        with suppress(docker.errors.APIError):  # it has ended
            for _, uid, command in container.top(ps_args="-eo pid,uid,args")["Processes"] or []:
                found.add((uid, command))
    return found
