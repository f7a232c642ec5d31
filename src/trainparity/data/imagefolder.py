"""One's own images, as `path/<class>/<image>`."""

from itertools import islice
from pathlib import Path

import numpy as np
import torch
from PIL import Image, UnidentifiedImageError
from torch import Tensor

from trainparity.data.errors import DataError

_SUFFIXES = {".bmp", ".gif", ".jpeg", ".jpg", ".png", ".ppm", ".tif", ".tiff", ".webp"}


def read_images(folder: Path, size: int, channels: int, limit: int | None = None) -> tuple[Tensor, Tensor]:
    """Read images, classes in alphabetical order: uint8 [N, channels, size, size] and int64 [N].

    Raises:
        DataError: the folder is missing or empty, or an image can't be read.
    """
    if not folder.is_dir():
        raise DataError(f"{folder}: no such folder; dataset.path must hold one folder per class")
    classes = sorted(path for path in folder.iterdir() if path.is_dir())
    found = ((path, label) for label, group in enumerate(classes) for path in _images(group))
    chosen = list(islice(found, limit))
    if not chosen:
        kinds = ", ".join(sorted(_SUFFIXES))
        raise DataError(f"{folder}: no images in it; expected <class>/<image> with one of {kinds}")
    images = np.stack([_read(path, size, channels) for path, _ in chosen])
    return torch.from_numpy(images).permute(0, 3, 1, 2).contiguous(), torch.tensor([label for _, label in chosen])


def _images(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.suffix.lower() in _SUFFIXES)


def _read(path: Path, size: int, channels: int) -> np.ndarray:
    """Read one image as [size, size, channels]: the shorter edge resized to `size`, the centre cropped."""
    try:
        with Image.open(path) as image:
            converted = image.convert("L" if channels == 1 else "RGB")
    except (UnidentifiedImageError, OSError, SyntaxError) as error:
        raise DataError(f"{path}: not a readable image: {error}; mend or remove it") from None
    scale = size / min(converted.size)
    width, height = (max(size, round(edge * scale)) for edge in converted.size)
    left, top = (width - size) // 2, (height - size) // 2
    resized = converted.resize((width, height), Image.Resampling.BILINEAR)
    cropped = np.asarray(resized.crop((left, top, left + size, top + size)))
    return cropped.reshape(size, size, channels)
