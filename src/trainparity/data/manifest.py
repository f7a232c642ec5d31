"""What a prepared dataset is and where it came from: read without torch, also where nothing of it is trained on."""

from pathlib import Path
from typing import TYPE_CHECKING, Self

from trainparity.records.base import Record

if TYPE_CHECKING:
    from torch import Tensor

MANIFEST = "manifest.json"
"""Its file, beside the tensors'."""


class TensorFacts(Record):
    """Shape and number format of a prepared tensor."""

    shape: list[int]
    dtype: str

    @classmethod
    def of(cls, tensor: "Tensor") -> Self:
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

    @classmethod
    def of(cls, folder: Path) -> Self:
        """Read the manifest of a prepared dataset."""
        return cls.read(folder / MANIFEST)
