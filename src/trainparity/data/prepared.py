"""A prepared dataset: its tensors, with the manifest that says what they are."""

from typing import ClassVar

import torch
from torch import Tensor

from trainparity.data.manifest import Manifest

Batch = dict[str, Tensor]
"""Tensors [B, ...] by name."""


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
