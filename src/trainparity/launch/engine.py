"""The Docker engine, as stages use it: containers locked down and stopped with us."""

import hashlib
import os
import re
import signal
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType

from docker.errors import APIError, DockerException, NotFound
from docker.models.containers import Container
from docker.types import DeviceRequest
from requests.exceptions import ConnectionError as EngineGone

import docker
from trainparity.errors import StoppedBySignal, UserError
from trainparity.launch import images
from trainparity.launch.images import Kind
from trainparity.ownership import owned, seen_at
from trainparity.stopping import stops_handled

_MEMORY = "TRAINPARITY_MEMORY"

_MOUNT = Path("/workspace")

_GRACE_S = 90
"""How long a stopped stage may take to write its checkpoint."""

_KILLED = 128 + signal.SIGKILL


def connect() -> docker.DockerClient:
    """Return a client of the engine that the environment names, or raise a `UserError`."""
    try:
        client = docker.from_env()
        client.ping()
    except DockerException:
        where = os.environ.get("DOCKER_HOST", "its usual socket")
        raise UserError(f"no Docker engine answers at {where}: start it, or set `runtime: host`") from None
    return client


def run_contained(kind: Kind, stage: Sequence[str], *, deadline_s: float | None = None) -> None:
    """Run a stage, by its name and arguments, inside an image, with its output streamed to ours."""
    client = connect()
    image = images.ensure(client, kind)
    try:
        _run(client, image, kind, stage, deadline_s)
    except NotFound:
        raise UserError("somebody removed the container; run it again to resume from the last checkpoint") from None
    except EngineGone:
        raise UserError("the Docker engine stopped answering; start it and run again") from None
    except APIError as error:
        raise UserError(f"the Docker engine refused: {error.explanation or error}") from None


def _run(client: docker.DockerClient, image: str, kind: Kind, stage: Sequence[str], deadline_s: float | None) -> None:
    name = _name(stage)
    with owned(_shared_folder() / name) as waited:  # and what is in the container ends with us, however we end
        with suppress(NotFound):  # of a run that was killed with no time to remove it
            client.containers.get(name).remove(force=True)
        container = _create(client, image, kind, name, ["python", "-m", "trainparity.stages", *stage], waited)
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
        why = f"ran out of memory ({_MEMORY} is {memory()})" if container.attrs["State"]["OOMKilled"] else "was killed"
        raise UserError(f"the container {why}; run it again to resume from the last checkpoint")
    if code:
        sys.exit(code)  # the stage inside has said why


def memory() -> str:
    """Return how much memory a container may take, as `16g`; compose.yaml says the same.

    Raises:
        UserError: the setting is no size.
    """
    chosen = os.environ.get(_MEMORY) or "16g"
    if not re.fullmatch(r"[1-9]\d*[bkmg]?", chosen):
        raise UserError(f"{_MEMORY}: {chosen!r} is not a size such as 16g or 900m")
    return chosen


def _name(stage: Sequence[str]) -> str:
    """Name a container by folder and stage: of one stage of one pipeline only one can run."""
    folder = hashlib.sha256(str(Path.cwd()).encode()).hexdigest()[:8]
    return "-".join(["trainparity", folder, *stage])


def _shared_folder() -> Path:
    """Return a folder that the container sees, made as its user's: it works below the one around it."""
    folder, owner = Path(".trainparity/containers"), Path.cwd().stat()
    for path in (folder.parent, folder):
        if not path.exists():
            path.mkdir()
            os.chown(path, owner.st_uid, owner.st_gid)
    return folder


def _create(
    client: docker.DockerClient, image: str, kind: Kind, name: str, command: list[str], waited: bool
) -> Container:
    """Create a container that may do no more than the stage needs; compose.yaml says the same."""
    root, owner = images.project(), Path.cwd().stat()
    volumes = {f"trainparity_{cache}": {"bind": f"/caches/{cache}"} for cache in ("torch", "inductor", "triton")}
    container: Container = client.containers.create(
        image,
        command,
        name=name,
        user=f"{owner.st_uid}:{owner.st_gid}",
        volumes={str(root): {"bind": str(_MOUNT)}, **volumes},
        working_dir=str(_MOUNT / Path.cwd().relative_to(root)),
        environment={"COLUMNS": os.environ.get("COLUMNS", "120"), **seen_at(root, _MOUNT, waited=waited)},
        read_only=True,
        tmpfs={"/tmp": "exec,mode=1777", "/home/trainparity": "mode=1777"},
        cap_drop=["ALL"],
        security_opt=["no-new-privileges:true"],
        network_mode="none",
        mem_limit=memory(),
        pids_limit=8192,
        shm_size="1g",
        device_requests=[DeviceRequest(count=-1, capabilities=[["gpu"]])] if kind == "cuda" else None,
    )
    return container


@contextmanager
def _removed(container: Container) -> Iterator[None]:
    try:
        yield
    finally:
        try:
            container.remove(force=True)
        except APIError as error:
            if error.status_code not in (404, 409):  # another has removed it, or does now
                raise


@contextmanager
def _stopped_with_us(container: Container) -> Iterator[list[int]]:
    """Stop the container when this process is to end, at once on a second one; yields the signals received."""
    received: list[int] = []

    def stop(number: int, frame: FrameType | None) -> None:
        received.append(number)
        if len(received) == 1:
            container.stop(timeout=_GRACE_S)
        else:
            with suppress(APIError):  # it has ended meanwhile
                container.kill()

    with stops_handled(stop):
        yield received


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
