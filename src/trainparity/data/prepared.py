"""Prepared datasets on disk: tensor files and a manifest of their checksums."""

import hashlib
from pathlib import Path
from typing import ClassVar, Self

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from trainparity.data.errors import DataError
from trainparity.data.memory import fits
from trainparity.records.base import Record, RecordError, replacing

Batch = dict[str, Tensor]
"""Tensors [B, ...] by name."""

_FILE = "data.safetensors"
_REMEDY = "make it again with `dvc repro -f -s prepare`"


class TensorFacts(Record):
    """Shape and number format of a prepared tensor."""

    shape: list[int]
    dtype: str

    @classmethod
    def of(cls, tensor: Tensor) -> Self:
        """Return a tensor's facts."""
        return cls(shape=list(tensor.shape), dtype=str(tensor.dtype).split(".")[1])


class FileFacts(Record):
    """What a prepared file must be to be trusted."""

    sha256: str
    bytes: int


class Manifest(Record):
    """What a prepared dataset holds and where it came from."""

    dataset: str
    samples: int
    tensors: dict[str, TensorFacts]
    files: dict[str, FileFacts]
    source: str
    """Where the data came from, in words."""
    real: bool
    """False for made-up data."""


class Prepared:
    """A dataset in memory: tensors [N, ...] by name."""

    reads_ahead: ClassVar[bool] = False
    """Whether `expect` is of use."""

    def __init__(self, manifest: Manifest, tensors: dict[str, Tensor]) -> None:
        self.manifest = manifest
        self.tensors = tensors

    def __len__(self) -> int:
        return self.manifest.samples

    def expect(self, indices: Tensor) -> None:
        """Be told which samples, int64 [B], will be asked for next."""

    def batch(self, indices: Tensor) -> Batch:
        """Return the samples at `indices`, int64 [B]: every tensor as [B, ...], and `samples`, the indices."""
        # `tensor[indices]` has the same bits and takes up to 27 times as long.
        return {name: tensor.index_select(0, indices) for name, tensor in self.tensors.items()} | {"samples": indices}


def write(folder: Path, dataset: str, tensors: dict[str, Tensor], *, source: str, real: bool) -> Manifest:
    """Write tensors [N, ...] and their manifest as `folder`, whole or not at all; an old one is replaced."""
    with replacing(folder) as unfinished:
        unfinished.mkdir()
        save_file({name: tensor.contiguous() for name, tensor in tensors.items()}, unfinished / _FILE)
        manifest = Manifest(
            dataset=dataset,
            samples=len(next(iter(tensors.values()))),
            tensors={name: TensorFacts.of(tensor) for name, tensor in tensors.items()},
            files={_FILE: FileFacts(sha256=_sha256(unfinished / _FILE), bytes=(unfinished / _FILE).stat().st_size)},
            source=source,
            real=real,
        )
        manifest.write(unfinished / "manifest.json")
    return manifest


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
        manifest = Manifest.read(folder / "manifest.json")
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
    if not streams:
        return Prepared(manifest, tensors)
    from trainparity.data.streamed import Streamed  # it is a `Prepared`

    return Streamed(manifest, tensors, path)


def keep_first(tensors: dict[str, Tensor], limit: int | None) -> dict[str, Tensor]:
    """Return the first `limit` samples; None keeps all."""
    return {name: tensor[:limit] for name, tensor in tensors.items()}


def resize(images: Tensor, size: int) -> Tensor:
    """Resize uint8 images [N, C, H, W] to [N, C, size, size], bilinearly."""
    resized = torch.nn.functional.interpolate(images.float(), size=(size, size), mode="bilinear", align_corners=False)
    return resized.round().clamp(0, 255).to(torch.uint8)


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
