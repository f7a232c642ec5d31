"""Every dataset by its name in params.yaml. Adding one is a function here, or a file, and an entry."""

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from trainparity.data.download import CIFAR10, MNIST, Source, fetch
from trainparity.data.formats import read_cifar10, read_idx
from trainparity.data.manifest import Manifest
from trainparity.data.memory import check_fits
from trainparity.data.prepared import keep_first, resize
from trainparity.data.store import write
from trainparity.params import Digits, Downloaded, Fake, ImageFolder, Photographs


class Content(NamedTuple):
    """A dataset's tensors, `images` and `labels`, and where they came from."""

    tensors: dict[str, Tensor]
    source: str
    real: bool = True


def prepare(settings: Digits | Photographs | Downloaded | ImageFolder | Fake, out: Path, downloads: Path) -> Manifest:
    """Write a dataset's tensor files and manifest as `out`; downloaded files are kept in `downloads`.

    `images` are uint8 [N, C, H, W] (float32 [N, ...] for `fake`), `labels` int64 [N].

    Raises:
        DataError: the data can't be fetched or read; `out` is as it was.
    """
    content = DATASETS[settings.name](settings, downloads)
    tensors = keep_first(content.tensors, getattr(settings, "limit", None))
    return write(out, settings.name, tensors, source=content.source, real=content.real)


def _digits(settings: Digits, downloads: Path) -> Content:
    from sklearn.datasets import load_digits  # costs a second, which other datasets need not pay

    digits = load_digits()
    images = torch.from_numpy(digits.images).mul(255 / 16).round().to(torch.uint8)[:, None]
    if settings.image_size != images.shape[-1]:
        images = resize(images, settings.image_size)
    labels = torch.from_numpy(digits.target).to(torch.int64)
    source = "scikit-learn's bundled scans (UCI optical recognition of handwritten digits)"
    return Content({"images": images, "labels": labels}, source)


def _photographs(settings: Photographs, downloads: Path) -> Content:
    from sklearn.datasets import load_sample_images

    photographs = torch.stack([torch.tensor(image) for image in load_sample_images().images]).permute(0, 3, 1, 2)
    size, stride = settings.image_size, settings.stride or settings.image_size
    # [photograph, channel, row, column, y, x], a photograph's tiles row by row.
    tiles = photographs.unfold(2, size, stride).unfold(3, size, stride)
    labels = torch.arange(len(photographs)).repeat_interleave(tiles.shape[2] * tiles.shape[3])
    images = tiles.permute(0, 2, 3, 1, 4, 5).reshape(-1, 3, size, size)
    source = "scikit-learn's bundled photographs (danielbuechele, vultilion; CC BY 2.0)"
    return Content({"images": images, "labels": labels}, source)


def _mnist(settings: Downloaded, downloads: Path, source: Source = MNIST) -> Content:
    images, labels = (read_idx(path) for path in fetch(source, downloads / "mnist", settings.mirrors))
    return Content({"images": images[:, None], "labels": labels.to(torch.int64)}, "MNIST's training set")


def _cifar10(settings: Downloaded, downloads: Path, source: Source = CIFAR10) -> Content:
    [archive] = fetch(source, downloads / "cifar10", settings.mirrors)
    images, labels = read_cifar10(archive)
    return Content({"images": images, "labels": labels}, "CIFAR-10's training set")


def _imagefolder(settings: ImageFolder, downloads: Path) -> Content:
    from trainparity.data.imagefolder import read_images  # with Pillow, which an extra brings

    images, labels = read_images(Path(settings.path), settings.image_size, settings.channels, settings.limit)
    return Content({"images": images, "labels": labels}, f"images in {settings.path}")


def _fake(settings: Fake, downloads: Path) -> Content:
    check_fits(4 * settings.size * math.prod(settings.shape), "dataset fake", "lower dataset.size")
    generator = torch.Generator().manual_seed(settings.seed)
    # Images first: they are then what `torch.manual_seed(seed); torch.rand(size, *shape)` gives (article B).
    images = torch.rand(settings.size, *settings.shape, generator=generator)
    labels = torch.randint(settings.classes, (settings.size,), generator=generator)
    return Content({"images": images, "labels": labels}, "made up: uniform random numbers", real=False)


DATASETS: dict[str, Callable[[Any, Path], Content]] = {
    "digits": _digits,
    "photographs": _photographs,
    "mnist": _mnist,
    "cifar10": _cifar10,
    "imagefolder": _imagefolder,
    "fake": _fake,
}
