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

_IDX_UINT8 = 0x08
_CIFAR_RECORD = 1 + 3 * 32 * 32
_CIFAR_BATCHES = [f"data_batch_{number}.bin" for number in range(1, 6)]


def read_idx(path: Path) -> Tensor:
    """Read a gzipped idx file of bytes (LeCun's format: type, dimensions, sizes, data) as uint8.

    Raises:
        DataError: it is no such file, or its end is missing.
    """
    try:
        content = gzip.decompress(path.read_bytes())
    except (OSError, EOFError, zlib.error) as error:
        raise DataError(f"{path}: not a whole gzip file: {error}; remove it to fetch it again") from None
    if len(content) < 4 or content[:3] != bytes([0, 0, _IDX_UINT8]):
        raise DataError(f"{path}: not an idx file of bytes; remove it to fetch it again")
    dimensions = content[3]
    shape = [int.from_bytes(content[4 + 4 * i : 8 + 4 * i], "big") for i in range(dimensions)]
    values = content[4 + 4 * dimensions :]
    if len(values) != math.prod(shape):
        raise DataError(f"{path}: {len(values)} bytes of data, its header says {shape}; remove it to fetch it again")
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
                if name in _CIFAR_BATCHES and (file := tar.extractfile(member)):
                    batches[name] = file.read()
    except (OSError, EOFError, tarfile.TarError, zlib.error) as error:
        raise DataError(f"{archive}: not a whole tar.gz file: {error}; remove it to fetch it again") from None
    parts = []
    for name in _CIFAR_BATCHES:
        content = batches.get(name, b"")
        if not content or len(content) % _CIFAR_RECORD:
            raise DataError(f"{archive}: {name} is missing or damaged; remove the archive to fetch it again")
        parts.append(np.frombuffer(content, dtype=np.uint8).reshape(-1, _CIFAR_RECORD))
    records = np.concatenate(parts)
    images = torch.from_numpy(records[:, 1:].reshape(-1, 3, 32, 32).copy())
    return images, torch.from_numpy(records[:, 0].astype(np.int64))
