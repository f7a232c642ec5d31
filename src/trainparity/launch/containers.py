"""Run a stage inside its image: built when missing or stale, locked down, and stopped when the stage is."""

import hashlib
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import Literal

from docker.errors import APIError, DockerException, ImageNotFound, NotFound
from docker.models.containers import Container
from docker.types import DeviceRequest
from requests.exceptions import ConnectionError as EngineGone

import docker
from trainparity import params as parameters
from trainparity.environment import IMAGE, Environment, Placement, place
from trainparity.errors import StoppedBySignal, UserError
from trainparity.exits import exit_code
from trainparity.params import Configuration, Params
from trainparity.records import layout
from trainparity.records.base import Record

Kind = Literal["cpu", "cuda"]

_INPUTS = ("docker/Dockerfile", "docker/install", "docker/entrypoint", "docker/describe", "requirements.lock")
"""What an image is made from; with these unchanged it is not built again."""

_GRACE_S = 90
"""How long a stopped stage may take to write its checkpoint."""

_KILLED = 128 + signal.SIGKILL


class Engine(Record):
    """What this machine's engine offers to a pipeline on the host, in `runs/engine.json`."""

    image: str | None
    """What the CPU image was made from; null if there is none that is current."""
    missing: str | None
    """Why no container can be started now."""


def project() -> Path:
    """Return the folder that is mounted: the nearest one, from here upwards, with a compose.yaml.

    Raises:
        UserError: there is none.
    """
    for folder in (Path.cwd(), *Path.cwd().parents):
        if (folder / "compose.yaml").exists():
            return folder
    raise UserError(f"no compose.yaml in {Path.cwd()} or above: images are built from the project")


def look() -> Engine:
    """Ask the engine, if there is one, for a current CPU image."""
    if IMAGE.exists():
        return Engine(image=None, missing="this is a container already")
    try:
        current = is_current(connect(), "cpu")
    except UserError as error:
        return Engine(image=None, missing=str(error).partition(":")[0])
    if current:
        return Engine(image=inputs(), missing=None)
    return Engine(image=None, missing="the image trainparity:cpu is missing or stale; `make images` builds it")


def image_of_engine(settings: Params) -> Kind:
    """Return the image that sees all that the engine can give a container."""
    return "cuda" if settings.accelerator in ("auto", "cuda") and has_nvidia(connect()) else "cpu"


def image_of(configuration: Configuration, settings: Params) -> Kind | None:
    """Return the image that a configuration runs in; None if it runs on Apple's GPU, which no container has."""
    if configuration.device == "mps":
        return None
    placement = place(configuration, settings.accelerator, Environment.read(layout.environment(Path("runs"))))
    return "cuda" if isinstance(placement, Placement) and placement.device == "cuda" else "cpu"


def here_or_contained(main: Callable[[], None], kind: Callable[[Params], Kind | None]) -> None:
    """Run a stage here, or its command line inside an image where params.yaml says `runtime: docker`.

    Args:
        main: The stage.
        kind: Chooses the image; None for a stage that must stay on the host.

    Raises:
        UserError: no engine answers, the image can't be built, or the container was killed or overran its deadline.
        StoppedBySignal: this process got SIGINT or SIGTERM; the container has ended and is removed.
    """
    settings = parameters.load(Path("params.yaml"))
    chosen = None if settings.runtime == "host" or IMAGE.exists() else kind(settings)
    if chosen is None:
        main()
    else:
        run_contained(chosen, sys.argv, deadline_s=settings.deadline_s)


def run_contained(kind: Kind, command: Sequence[str], *, deadline_s: float | None = None) -> None:
    """Run a Python script of the working directory inside an image, with its output streamed to ours."""
    client = connect()
    ensure_image(client, kind)
    try:
        _run(client, kind, command, deadline_s)
    except EngineGone as error:
        raise UserError(f"the Docker engine stopped answering: {error}; start it and run again") from None
    except APIError as error:
        raise UserError(f"the Docker engine refused: {error.explanation or error}") from None


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


def _run(client: docker.DockerClient, kind: Kind, command: Sequence[str], deadline_s: float | None) -> None:
    name = _name(command)
    with suppress(NotFound):  # of a run that was killed with no time to remove it
        client.containers.get(name).remove(force=True)
    container = _create(client, kind, name, ["python", *command])
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


def _name(command: Sequence[str]) -> str:
    """Name a container by folder and stage: of one stage of one pipeline only one can run."""
    folder = hashlib.sha256(str(Path.cwd()).encode()).hexdigest()[:8]
    return "-".join(["trainparity", folder, Path(command[0]).stem, *command[1:]])


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


def main() -> None:
    """Build the images that are named on the command line, where they are missing or stale."""
    kinds: tuple[Kind, ...] = ("cpu", "cuda")
    for kind in kinds:
        if kind in sys.argv[1:]:
            ensure_image(connect(), kind)


if __name__ == "__main__":
    sys.exit(exit_code(main))
