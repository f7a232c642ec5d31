"""Datasets as checksummed tensor files."""

import hashlib
import json
from collections.abc import Iterator, Sequence
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor


class DataError(RuntimeError):
    pass


class Prepared:
    def __init__(self, tensors):
        self.tensors = tensors

    def __len__(self):
        return len(next(iter(self.tensors.values())))

    def batch(self, indices: Tensor):
        return {k: v[indices] for k, v in self.tensors.items()} | {"samples": indices}


def prepare(settings, out: Path, downloads: Path):
    if settings.name == "digits":
        from sklearn.datasets import load_digits

        d = load_digits()
        tensors = {"images": torch.from_numpy((d.images * 255 / 16).round()).to(torch.uint8)[:, None].contiguous(), "labels": torch.from_numpy(d.target).long()}
    else:
        g = torch.Generator().manual_seed(settings.seed)
        tensors = {"images": torch.rand(settings.size, *settings.shape, generator=g)}
    out.mkdir(parents=True, exist_ok=True)
    save_file(tensors, out / "data.safetensors")
    (out / "manifest.json").write_text(hashlib.sha256((out / "data.safetensors").read_bytes()).hexdigest())


def load(folder: Path):
    return Prepared(load_file(folder / "data.safetensors"))


def micro_batches(dataset: Prepared, plan: Sequence[Tensor], loader) -> Iterator[dict[str, Tensor]]:
    for indices in plan:
        yield dataset.batch(indices)
