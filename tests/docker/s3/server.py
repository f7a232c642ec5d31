"""An S3 server for tests: Ceph's gateway in a container, which only this machine can reach."""

import os
import secrets
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from docker.models.containers import Container

import docker

if TYPE_CHECKING:
    from s3fs import S3FileSystem


@dataclass(frozen=True, kw_only=True)
class Server:
    """A running server, which knows one user."""

    container: Container
    url: str
    access_key: str
    secret_key: str

    def filesystem(self) -> "S3FileSystem":
        """Return what it holds now."""
        from s3fs import S3FileSystem  # the images are without it, and import this all the same

        return S3FileSystem(
            key=self.access_key, secret=self.secret_key, endpoint_url=self.url, use_listings_cache=False
        )


@contextmanager
def serving() -> Iterator[Server]:
    """Start a server with credentials made for it; it is removed afterwards, its image and its contents too."""
    image = f"trainparity-test-s3-{os.getpid()}"
    build = ["docker", "build", "--quiet", "--build-arg", "BASE_IMAGE", "--tag", image, str(Path(__file__).parent)]
    built = subprocess.run(build, capture_output=True, text=True, check=False)
    assert built.returncode == 0, built.stderr[-4000:]
    access_key, secret_key = secrets.token_hex(10), secrets.token_hex(20)
    client = docker.from_env()
    container = client.containers.create(
        image,
        name=image,
        environment={"ACCESS_KEY": access_key, "SECRET_KEY": secret_key},
        ports={"8080/tcp": ("127.0.0.1", None)},
        read_only=True,
        tmpfs={"/var/lib/ceph": "mode=1777"},
        cap_drop=["ALL"],
        security_opt=["no-new-privileges:true"],
    )
    try:
        container.start()
        container.reload()
        port = container.ports["8080/tcp"][0]["HostPort"]
        server = Server(
            container=container, url=f"http://127.0.0.1:{port}", access_key=access_key, secret_key=secret_key
        )
        wait_for(server)
        yield server
    finally:
        container.remove(force=True)
        client.images.remove(image)


def wait_for(server: Server, seconds: float = 60) -> None:
    """Wait until it answers, or fail with what it said."""
    deadline = time.monotonic() + seconds
    while True:
        try:
            urllib.request.urlopen(server.url, timeout=5).close()
            return
        except OSError:
            said = server.container.logs(tail=40).decode(errors="replace")
            assert time.monotonic() < deadline, f"{server.url} does not answer\n{said}"
            time.sleep(0.2)
