"""A server in a container, for tests: its image is made from a folder, and only this machine can reach it."""

import os
import subprocess
import time
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from docker.models.containers import Container

import docker


@contextmanager
def serving(
    folder: Path, *, port: int, state: str, environment: Mapping[str, str] | None = None
) -> Iterator[tuple[Container, str]]:
    """Start a folder's server and yield it with its address; container, image and contents are removed afterwards.

    Args:
        folder: Where its Dockerfile is; its name is the image's.
        port: Where it serves HTTP in the container.
        state: The only folder that it may write to; it lies in memory.
        environment: What it is told.
    """
    image = f"trainparity-test-{folder.name}-{os.getpid()}"
    build = ["docker", "build", "--quiet", "--build-arg", "BASE_IMAGE", "--tag", image, str(folder)]
    built = subprocess.run(build, capture_output=True, text=True, check=False)
    assert built.returncode == 0, built.stderr[-4000:]
    client = docker.from_env()
    container = client.containers.create(
        image,
        name=image,
        environment=dict(environment or {}),
        ports={f"{port}/tcp": ("127.0.0.1", None)},
        read_only=True,
        tmpfs={state: "mode=1777"},
        cap_drop=["ALL"],
        security_opt=["no-new-privileges:true"],
    )
    try:
        container.start()
        container.reload()
        url = f"http://127.0.0.1:{container.ports[f'{port}/tcp'][0]['HostPort']}"
        _wait_for(url, container)
        yield container, url
    finally:
        container.remove(force=True)
        client.images.remove(image)


def _wait_for(url: str, container: Container, seconds: float = 60) -> None:
    """Wait until it answers, or fail with what it said."""
    deadline = time.monotonic() + seconds
    while True:
        try:
            urllib.request.urlopen(url, timeout=5).close()
            return
        except OSError:
            said = container.logs(tail=40).decode(errors="replace")
            assert time.monotonic() < deadline, f"{url} does not answer\n{said}"
            time.sleep(0.2)
