"""Prepared datasets on disk: tensor files and a manifest of their checksums."""

import hashlib
from pathlib import Path

from safetensors.torch import load_file
from torch import Tensor

from trainparity.data.errors import DataError
from trainparity.data.manifest import MANIFEST, FileFacts, Manifest, TensorFacts
from trainparity.data.memory import fits
from trainparity.data.prepared import Prepared
from trainparity.data.streamed import Streamed
from trainparity.records.base import RecordError
from trainparity.records.files import is_free, replacing
from trainparity.records.tensors import save

_FILE = "data.safetensors"
_REMEDY = "make it again with `dvc repro -f -s prepare`"
_MOVE = "move it away, or name another folder"


def write(folder: Path, dataset: str, tensors: dict[str, Tensor], *, source: str, real: bool) -> Manifest:
    """Write tensors [N, ...] and their manifest as `folder`, whole or not at all; an old one is replaced.

    Raises:
        DataError: the folder is another one's, or holds something besides; it stays as it is.
    """
    _check_replaceable(folder)
    with replacing(folder) as unfinished:
        unfinished.mkdir()
        save(tensors, unfinished / _FILE)
        manifest = Manifest(
            dataset=dataset,
            samples=len(next(iter(tensors.values()))),
            tensors={name: TensorFacts.of(tensor) for name, tensor in tensors.items()},
            files={_FILE: FileFacts(sha256=_sha256(unfinished / _FILE), bytes=(unfinished / _FILE).stat().st_size)},
            source=source,
            real=real,
        )
        manifest.write(unfinished / MANIFEST)
    return manifest


def _check_replaceable(folder: Path) -> None:
    """Refuse a folder with anything that `write` has not put there: a project's own data have such names, too.

    By names and not by contents: a damaged dataset, or that of another version, is to be made again.
    """
    if is_free(folder):
        return
    there = {path.name for path in folder.iterdir()} if folder.is_dir() else set()
    if others := sorted(there - {_FILE, MANIFEST}):
        raise DataError(
            f"{folder}: holds {others[0]}, which no prepared dataset has and which writing one would remove; {_MOVE}"
        )
    if MANIFEST not in there:
        raise DataError(f"{folder}: holds no {MANIFEST}, so it is no prepared dataset that may be replaced; {_MOVE}")


def load(folder: Path, *, stream: bool | None = None) -> Prepared:
    """Read a prepared dataset, after holding every file against the manifest.

    Args:
        folder: What `write` made.
        stream: Read batches from the file when they are asked for, and hold only its size against the manifest; None
            does so if the dataset is larger than memory.

    Raises:
        DataError: a file is missing or damaged.
    """
    try:
        manifest = Manifest.of(folder)
    except RecordError as error:
        raise DataError(f"{error}; {_REMEDY}") from None
    path, facts = folder / _FILE, manifest.files.get(_FILE)
    if facts is None or not path.exists():
        raise DataError(f"{path}: missing; {_REMEDY}")
    if path.stat().st_size != facts.bytes:
        raise DataError(f"{path}: damaged: {path.stat().st_size} bytes, should be {facts.bytes}; {_REMEDY}")
    streams = not fits(facts.bytes) if stream is None else stream
    if not streams and _sha256(path) != facts.sha256:
        raise DataError(f"{path}: damaged: its SHA-256 is not the manifest's; {_REMEDY}")
    tensors = load_file(path)  # mapped: what is not asked for is not read
    held = {name: TensorFacts.of(tensor) for name, tensor in tensors.items()}
    if held != manifest.tensors or any(facts.shape[:1] != [manifest.samples] for facts in held.values()):
        raise DataError(f"{folder}: its tensors are not those of its manifest; {_REMEDY}")
    return Streamed(manifest, tensors, path) if streams else Prepared(manifest, tensors)


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
