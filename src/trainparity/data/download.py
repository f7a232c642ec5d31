"""Fetch files from mirrors: checksummed, resumed where they broke off, kept for the next time."""

import hashlib
import http.client
import os
import urllib.error
import urllib.request
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

from trainparity.data.errors import DataError
from trainparity.printable import without_password

_TIMEOUT_S = 30.0
_BLOCK = 1 << 16
_LARGEST = 1 << 30
"""Bytes; our largest file has 0.17 of it. A mirror that sends more is broken or hostile."""


@dataclass(frozen=True, kw_only=True)
class Source:
    """Files of a dataset with their published MD5 sums, and where they are to be had."""

    files: dict[str, str]
    mirrors: tuple[str, ...]


MNIST = Source(
    files={
        "train-images-idx3-ubyte.gz": "f68b3c2dcbeaaa9fbdd348bbdeb94873",
        "train-labels-idx1-ubyte.gz": "d53e105ee54ea40749a09fcbcd1e9432",
    },
    mirrors=("https://ossci-datasets.s3.amazonaws.com/mnist/", "http://yann.lecun.com/exdb/mnist/"),
)
CIFAR10 = Source(
    files={"cifar-10-binary.tar.gz": "c32a1d4ab5d03f1284b67883e8d87530"},
    mirrors=("https://www.cs.toronto.edu/~kriz/",),
)


def fetch(source: Source, folder: Path, mirrors: Sequence[str] = (), timeout_s: float = _TIMEOUT_S) -> list[Path]:
    """Return a source's files in `folder`, fetching those that are not there; `mirrors` are tried first.

    Raises:
        DataError: no mirror gave a right file; the message lists what each one said.
    """
    folder.mkdir(parents=True, exist_ok=True)
    return [
        _fetch(name, md5, folder / name, [*mirrors, *source.mirrors], timeout_s) for name, md5 in source.files.items()
    ]


def _fetch(name: str, md5: str, path: Path, mirrors: Sequence[str], timeout_s: float) -> Path:
    if path.exists() and _md5(path) == md5:
        return path
    failures = []
    for mirror in mirrors:
        url = f"{mirror.rstrip('/')}/{name}"
        try:
            if not url.startswith(("http://", "https://")):
                raise ValueError("a mirror is an http or https address")
            if "@" in urlsplit(url).netloc:
                raise ValueError("a mirror's address has no user or password: they would be kept in params.yaml")
            return _try(url, md5, path, timeout_s)
        except (OSError, http.client.HTTPException, ValueError) as error:
            failures.append(f"  {without_password(url)}: {error}")
    raise DataError(
        f"{name} could not be fetched:\n" + "\n".join(failures) + f"\n"
        f"Put the file at {path} by hand, name another mirror in dataset.mirrors, or train on data that needs "
        f"no network (dataset.name: digits)."
    )


def _try(url: str, md5: str, path: Path, timeout_s: float) -> Path:
    """Fetch from one mirror; a part that an earlier try left is resumed, once."""
    part = path.with_name(f"{path.name}.part")
    for attempt in ("resumed", "whole"):
        if attempt == "whole" or not part.exists():
            part.unlink(missing_ok=True)
            attempt = "whole"
        _download(url, part, timeout_s)
        if _md5(part) == md5:
            part.replace(path)
            return path
        if attempt == "whole":
            break
    found = _md5(part)
    part.unlink()
    raise ValueError(f"wrong checksum: MD5 {found}, should be {md5}")


def _download(url: str, part: Path, timeout_s: float) -> None:
    """Append to `part` what the server has beyond it; a broken connection leaves what came."""
    have = part.stat().st_size if part.exists() else 0
    request = urllib.request.Request(url, headers={"Range": f"bytes={have}-"} if have else {})
    try:
        response = urllib.request.urlopen(request, timeout=timeout_s)
    except urllib.error.HTTPError as error:
        if error.code == http.HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE:
            return  # all of it is here already
        raise
    with response, part.open("ab" if response.status == http.HTTPStatus.PARTIAL_CONTENT else "wb") as file:
        resumed = have if response.status == http.HTTPStatus.PARTIAL_CONTENT else 0
        length = response.headers.get("Content-Length")
        total = resumed + int(length) if length else None
        with _progress() as progress:
            task = progress.add_task(part.stem, total=total, completed=resumed)
            while block := response.read(_BLOCK):
                file.write(block)
                if file.tell() > _LARGEST:
                    part.unlink()
                    raise ValueError(f"the server sends more than {_LARGEST} bytes, which is no such file")
                progress.advance(task, len(block))
        size = file.tell()
    if total is not None and size < total:
        raise ValueError(f"the connection broke off after {size} of {total} bytes; run it again to resume from there")


def _progress() -> Progress:
    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TimeRemainingColumn())
    console = Console(stderr=True)
    return Progress(*columns, console=console, disable=not console.is_terminal or "CI" in os.environ)


def _md5(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, lambda: hashlib.md5(usedforsecurity=False)).hexdigest()
