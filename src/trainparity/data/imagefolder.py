"""One's own images, as `path/<class>/<image>`."""

import struct
from itertools import islice
from pathlib import Path

import numpy as np
import torch
from PIL import Image, UnidentifiedImageError
from torch import Tensor

from trainparity.data.errors import DataError
from trainparity.data.memory import check_fits

_SUFFIXES = {".bmp", ".gif", ".jpeg", ".jpg", ".png", ".ppm", ".tif", ".tiff", ".webp"}


def read_images(folder: Path, size: int, channels: int, limit: int | None = None) -> tuple[Tensor, Tensor]:
    """Read images, classes in alphabetical order: uint8 [N, channels, size, size] and int64 [N].

    Hidden files and folders, such as `.ipynb_checkpoints`, are not looked at.

    Raises:
        DataError: the folder is missing or empty, a class is there twice, or an image can't be read.
    """
    if not folder.is_dir():
        raise DataError(f"{folder}: no such folder; dataset.path must hold one folder per class")
    classes = _classes(folder)
    found = ((path, label) for label, group in enumerate(classes) for path in _images(group))
    chosen = list(islice(found, limit))
    if not chosen:
        kinds = ", ".join(sorted(_SUFFIXES))
        raise DataError(f"{folder}: no images in it; expected <class>/<image> with one of {kinds}")
    check_fits(
        2 * len(chosen) * size * size * channels, f"{folder} as tensors", "lower image_size or set dataset.limit"
    )
    images = np.stack([_read(path, size, channels) for path, _ in chosen])
    return torch.from_numpy(images).permute(0, 3, 1, 2).contiguous(), torch.tensor([label for _, label in chosen])


def _classes(folder: Path) -> list[Path]:
    found: dict[Path, Path] = {}
    for path in sorted(path for path in folder.iterdir() if path.is_dir() and not _hidden(path)):
        if (real := path.resolve()) in found:
            raise DataError(f"{path} is the same folder as {found[real]}: its samples would count twice; remove one")
        found[real] = path
    return list(found.values())


def _images(folder: Path) -> list[Path]:
    return sorted(
        path
        for path in folder.rglob("*")
        if path.suffix.lower() in _SUFFIXES and not any(map(_hidden, (path, *path.relative_to(folder).parents)))
    )


def _hidden(path: Path) -> bool:
    return path.name.startswith(".") or path.name == "__MACOSX"


_LARGEST = 1 << 28
"""Pixels of a resized image, before it is cropped."""
_UNREADABLE = (
    UnidentifiedImageError,
    Image.DecompressionBombError,
    OSError,
    SyntaxError,
    ValueError,
    EOFError,
    struct.error,
)


def _to_8_bits(image: Image.Image) -> Image.Image:
    """Scale 16-bit grey values to 8 bits, where Pillow's own conversion clips them at 255."""
    if image.mode.startswith("I;16"):
        values = np.asarray(image).astype(np.uint16)
        return Image.fromarray(((values.astype(np.uint32) * 255 + 32767) // 65535).astype(np.uint8))
    if image.mode in ("I", "F"):
        raise ValueError(f"its values are {'32-bit integers' if image.mode == 'I' else 'floats'} of no known range")
    return image


def _read(path: Path, size: int, channels: int) -> np.ndarray:
    """Read one image as [size, size, channels]: the shorter edge resized to `size`, the centre cropped."""
    try:
        with Image.open(path) as image:
            converted = _to_8_bits(image).convert("L" if channels == 1 else "RGB")
    except _UNREADABLE as error:
        raise DataError(f"{path}: not a readable image: {error}; mend or remove it") from None
    scale = size / min(converted.size)
    width, height = (max(size, round(edge * scale)) for edge in converted.size)
    if width * height > _LARGEST:
        raise DataError(
            f"{path}: {converted.width} x {converted.height} pixels: with its shorter edge at {size} it would have "
            f"{width * height:,}; cut or remove it"
        )
    left, top = (width - size) // 2, (height - size) // 2
    resized = converted.resize((width, height), Image.Resampling.BILINEAR)
    cropped = np.asarray(resized.crop((left, top, left + size, top + size)))
    return cropped.reshape(size, size, channels)
