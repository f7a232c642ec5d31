"""An S3 server for tests: Ceph's gateway in a container, which only this machine can reach."""

import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from docker.models.containers import Container

from tests.support import docker_server

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
    keys = {"ACCESS_KEY": secrets.token_hex(10), "SECRET_KEY": secrets.token_hex(20)}
    folder = Path(__file__).parent
    with docker_server.serving(folder, port=8080, state="/var/lib/ceph", environment=keys) as (container, url):
        yield Server(container=container, url=url, access_key=keys["ACCESS_KEY"], secret_key=keys["SECRET_KEY"])
