"""The Docker engine, as stages use it: images built when stale, containers locked down and stopped with us."""

import hashlib
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import Literal

from docker.errors import APIError, DockerException, ImageNotFound, NotFound
from docker.models.containers import Container
from docker.types import DeviceRequest
from requests.exceptions import ConnectionError as EngineGone

import docker
from trainparity.errors import StoppedBySignal, UserError

Kind = Literal["cpu", "cuda"]

_INPUTS = ("docker/Dockerfile", "docker/install", "docker/entrypoint", "docker/describe", "requirements.lock")
"""What an image is made from; with these unchanged it is not built again."""

_GRACE_S = 90
"""How long a stopped stage may take to write its checkpoint."""

_KILLED = 128 + signal.SIGKILL


def project() -> Path:
    """Return the folder that is mounted: the nearest one, from here upwards, with a compose.yaml.

    Raises:
        UserError: there is none.
    """
    for folder in (Path.cwd(), *Path.cwd().parents):
        if (folder / "compose.yaml").exists():
            return folder
    raise UserError(f"no compose.yaml in {Path.cwd()} or above: images are built from the project")


def connect() -> docker.DockerClient:
    """Return a client of the engine that the environment names, or raise a `UserError`."""
    try:
        client = docker.from_env()
        client.ping()
    except DockerException:
        where = os.environ.get("DOCKER_HOST", "its usual socket")
        raise UserError(f"no Docker engine answers at {where}: start it, or set `runtime: host`") from None
    return client


def has_nvidia(client: docker.DockerClient) -> bool:
    """Tell whether the engine can give a container NVIDIA GPUs."""
    return "nvidia" in client.info().get("Runtimes", {})


def inputs() -> str:
    """Hash what the images are made from: files, and the settings that compose.yaml passes on."""
    digest = hashlib.sha256()
    for name in _INPUTS:
        digest.update((project() / name).read_bytes())
    for name in ("BASE_IMAGE", "TORCH_INDEX"):
        digest.update(os.environ.get(name, "").encode() + b"\0")
    return digest.hexdigest()[:16]


def is_current(client: docker.DockerClient, kind: Kind) -> bool:
    """Tell whether an image is there and was built from what is here now."""
    try:
        labels = client.images.get(f"trainparity:{kind}").labels
    except ImageNotFound:
        return False
    return bool(labels.get("org.trainparity.inputs") == inputs())


def ensure_image(client: docker.DockerClient, kind: Kind) -> None:
    """Build an image if it is missing or stale. The SDK has no BuildKit, so the command does it."""
    if is_current(client, kind):
        return
    print(f"building the image trainparity:{kind}", flush=True)
    try:
        revision = subprocess.run(["git", "rev-parse", "HEAD"], capture_output=True, text=True, check=False).stdout
        labels = {"INPUTS": inputs(), "REVISION": revision.strip() or "unknown"}
        command = ["docker", "compose", "build", f"train-{kind}"]
        done = subprocess.run(command, cwd=project(), env={**os.environ, **labels}, check=False)
    except FileNotFoundError as error:
        raise UserError(f"no {error.filename} command to build the image with; install it") from None
    if done.returncode:
        raise UserError(f"the image trainparity:{kind} can't be built: see above")


def run_contained(kind: Kind, stage: Sequence[str], *, deadline_s: float | None = None) -> None:
    """Run a stage, by its name and arguments, inside an image, with its output streamed to ours."""
    client = connect()
    ensure_image(client, kind)
    try:
        _run(client, kind, stage, deadline_s)
    except EngineGone as error:
        raise UserError(f"the Docker engine stopped answering: {error}; start it and run again") from None
    except APIError as error:
        raise UserError(f"the Docker engine refused: {error.explanation or error}") from None


def _run(client: docker.DockerClient, kind: Kind, stage: Sequence[str], deadline_s: float | None) -> None:
    name = _name(stage)
    with suppress(NotFound):  # of a run that was killed with no time to remove it
        client.containers.get(name).remove(force=True)
    container = _create(client, kind, name, ["python", "-m", "trainparity.stages", *stage])
    with _removed(container), _stopped_with_us(container) as received, _deadline(container, deadline_s) as overrun:
        container.start()
        for chunk in container.logs(stream=True, follow=True):
            sys.stdout.buffer.write(chunk)
            sys.stdout.buffer.flush()
        code = container.wait()["StatusCode"]
        container.reload()
    if received:
        raise StoppedBySignal(received[0])
    if overrun.is_set():
        raise UserError(f"stopped after deadline_s: {deadline_s}; run it again to resume from the last checkpoint")
    if container.attrs["State"]["OOMKilled"] or code == _KILLED:
        why = "ran out of memory" if container.attrs["State"]["OOMKilled"] else "was killed"
        raise UserError(f"the container {why}; run it again to resume from the last checkpoint")
    if code:
        sys.exit(code)  # the stage inside has said why


def _name(stage: Sequence[str]) -> str:
    """Name a container by folder and stage: of one stage of one pipeline only one can run."""
    folder = hashlib.sha256(str(Path.cwd()).encode()).hexdigest()[:8]
    return "-".join(["trainparity", folder, *stage])


def _create(client: docker.DockerClient, kind: Kind, name: str, command: list[str]) -> Container:
    """Create a container that may do no more than the stage needs; compose.yaml says the same."""
    root, owner = project(), Path.cwd().stat()
    volumes = {f"trainparity_{cache}": {"bind": f"/caches/{cache}"} for cache in ("torch", "inductor", "triton")}
    container: Container = client.containers.create(
        f"trainparity:{kind}",
        command,
        name=name,
        user=f"{owner.st_uid}:{owner.st_gid}",
        volumes={str(root): {"bind": "/workspace"}, **volumes},
        working_dir=str("/workspace" / Path.cwd().relative_to(root)),
        environment={"COLUMNS": os.environ.get("COLUMNS", "120")},
        read_only=True,
        tmpfs={"/tmp": "exec,mode=1777", "/home/trainparity": "mode=1777"},
        cap_drop=["ALL"],
        security_opt=["no-new-privileges:true"],
        network_mode="none",
        shm_size="1g",
        device_requests=[DeviceRequest(count=-1, capabilities=[["gpu"]])] if kind == "cuda" else None,
    )
    return container


@contextmanager
def _removed(container: Container) -> Iterator[None]:
    try:
        yield
    finally:
        container.remove(force=True)


@contextmanager
def _stopped_with_us(container: Container) -> Iterator[list[int]]:
    """Stop the container on SIGINT and SIGTERM; yields the signals received."""
    received: list[int] = []

    def stop(number: int, frame: FrameType | None) -> None:
        if not received:
            received.append(number)
            container.stop(timeout=_GRACE_S)

    before = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield received
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def _deadline(container: Container, seconds: float | None) -> Iterator[threading.Event]:
    """Stop the container after so many seconds; the event says that it happened."""
    overrun = threading.Event()

    def stop() -> None:
        overrun.set()
        container.stop(timeout=_GRACE_S)

    timer = threading.Timer(seconds, stop) if seconds else None
    if timer:
        timer.start()
    try:
        yield overrun
    finally:
        if timer:
            timer.cancel()
