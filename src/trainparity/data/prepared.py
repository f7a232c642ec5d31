"""A prepared dataset: its tensors, and the manifest that says what they are and where they came from."""

from typing import ClassVar, Self

import torch
from torch import Tensor

from trainparity.records.base import Record

Batch = dict[str, Tensor]
"""Tensors [B, ...] by name."""


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


def keep_first(tensors: dict[str, Tensor], limit: int | None) -> dict[str, Tensor]:
    """Return the first `limit` samples; None keeps all."""
    return {name: tensor[:limit] for name, tensor in tensors.items()}


def resize(images: Tensor, size: int) -> Tensor:
    """Resize uint8 images [N, C, H, W] to [N, C, size, size], bilinearly."""
    resized = torch.nn.functional.interpolate(images.float(), size=(size, size), mode="bilinear", align_corners=False)
    return resized.round().clamp(0, 255).to(torch.uint8)
