"""MNIST's and CIFAR-10's own binary files, read directly: no pickle, nothing unpacked to disk."""

import gzip
import math
import tarfile
import zlib
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from trainparity.data.errors import DataError
from trainparity.data.memory import check_fits

_AGAIN = "remove it to fetch it again"
_IDX_UINT8 = 0x08
_IDX_DIMENSIONS = 8
"""No dataset has more; a damaged header may."""
_CIFAR_RECORD = 1 + 3 * 32 * 32
_CIFAR_BATCH = 10_000 * _CIFAR_RECORD
_CIFAR_BATCHES = [f"data_batch_{number}.bin" for number in range(1, 6)]


def read_idx(path: Path) -> Tensor:
    """Read a gzipped idx file of bytes (LeCun's format: type, dimensions, sizes, data) as uint8.

    Raises:
        DataError: it is no such file, or its end is missing.
    """
    try:
        with gzip.open(path) as file:
            start = file.read(4)
            if len(start) < 4 or start[:3] != bytes([0, 0, _IDX_UINT8]) or start[3] > _IDX_DIMENSIONS:
                raise DataError(f"{path}: not an idx file of bytes; {_AGAIN}")
            sizes = file.read(4 * start[3])
            shape = [int.from_bytes(sizes[at : at + 4], "big") for at in range(0, len(sizes), 4)]
            if 0 in shape:
                raise DataError(f"{path}: its header says {shape}, which is no data; {_AGAIN}")
            expected = math.prod(shape)
            check_fits(2 * expected, str(path), _AGAIN)
            values = file.read(expected + 1)  # and no more: little gzip can hold very much
    except (OSError, EOFError, zlib.error) as error:
        raise DataError(f"{path}: not a whole gzip file: {error}; {_AGAIN}") from None
    if len(values) != expected:
        found = len(values) if len(values) < expected else f"more than {expected}"
        raise DataError(f"{path}: {found} bytes of data, its header says {shape}; {_AGAIN}")
    return torch.from_numpy(np.frombuffer(values, dtype=np.uint8).reshape(shape).copy())


def read_cifar10(archive: Path) -> tuple[Tensor, Tensor]:
    """Read the training batches of CIFAR-10's binary archive: uint8 [N, 3, 32, 32] and int64 [N].

    Raises:
        DataError: it is no such archive, or a batch is missing or damaged.
    """
    batches: dict[str, bytes] = {}
    try:
        with tarfile.open(archive, "r:gz") as tar:
            for member in tar:
                name = Path(member.name).name
                plain = member.isreg() and not member.issparse() and member.size <= _CIFAR_BATCH
                if plain and name in _CIFAR_BATCHES and (file := tar.extractfile(member)):
                    batches[name] = file.read()
    except (OSError, EOFError, tarfile.TarError, zlib.error, ValueError) as error:  # the last of numbers in headers
        raise DataError(f"{archive}: not a whole tar.gz file: {error}; {_AGAIN}") from None
    parts = []
    for name in _CIFAR_BATCHES:
        content = batches.get(name, b"")
        if not content or len(content) % _CIFAR_RECORD:
            raise DataError(f"{archive}: {name} is missing or damaged; remove the archive to fetch it again")
        parts.append(np.frombuffer(content, dtype=np.uint8).reshape(-1, _CIFAR_RECORD))
    records = np.concatenate(parts)
    images = torch.from_numpy(records[:, 1:].reshape(-1, 3, 32, 32).copy())
    return images, torch.from_numpy(records[:, 0].astype(np.int64))
