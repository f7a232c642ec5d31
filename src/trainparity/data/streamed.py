"""A dataset larger than memory: batches are read from its mapped file, the next ones while the device computes."""

import json
import os
from pathlib import Path

from safetensors.torch import load_file
from torch import Tensor

from trainparity.data.manifest import Manifest
from trainparity.data.prepared import Prepared

_LENGTH_BYTES = 8


class Streamed(Prepared):
    """Tensors mapped from a safetensors file: the system reads what is asked for and keeps what it has room for."""

    reads_ahead = True

    def __init__(self, manifest: Manifest, tensors: dict[str, Tensor], path: Path) -> None:
        super().__init__(manifest, tensors)
        self._path = path.resolve()
        self._rows = rows(self._path, manifest.samples)

    def expect(self, indices: Tensor) -> None:
        """Have the samples at `indices` read in the background: a batch's samples lie anywhere in the file."""
        if not hasattr(os, "posix_fadvise"):  # as on macOS
            return
        with self._path.open("rb", buffering=0) as file:
            for index in sorted(indices.tolist()):
                for start, size in self._rows:
                    os.posix_fadvise(file.fileno(), start + index * size, size, os.POSIX_FADV_WILLNEED)

    def __reduce__(self) -> tuple[object, ...]:
        """Map the file again in a loader's worker process: its tensors would be copied to shared memory."""
        return _mapped_again, (type(self), self.manifest, self._path)


def _mapped_again(kind: type[Streamed], manifest: Manifest, path: Path) -> Streamed:
    return kind(manifest, load_file(path), path)


def rows(path: Path, samples: int) -> list[tuple[int, int]]:
    """Return where each tensor's first sample begins and how many bytes a sample has.

    Format: https://github.com/safetensors/safetensors#format
    """
    with path.open("rb") as file:
        length = int.from_bytes(file.read(_LENGTH_BYTES), "little")
        header = json.loads(file.read(length))
    offsets = [entry["data_offsets"] for name, entry in header.items() if name != "__metadata__"]
    return [(_LENGTH_BYTES + length + start, (stop - start) // samples) for start, stop in offsets]
