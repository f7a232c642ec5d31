"""The section `dataset`: a class for each dataset that can be named."""

from typing import Annotated, Literal

from pydantic import Field

from trainparity.validation import Section


class _Dataset(Section):
    @property
    def files_read(self) -> list[str]:
        """Files and folders of the user that it is read from."""
        return []


class Digits(_Dataset):
    """scikit-learn's bundled 8x8 scans of handwritten digits: 1797 samples, ten classes, no network."""

    name: Literal["digits"]
    image_size: int = Field(default=8, ge=8, le=256)
    """Edge in pixels that the 8x8 scans are resized to."""
    limit: int | None = Field(default=None, ge=1)
    """Keep the first so many samples; null keeps all."""


class Photographs(_Dataset):
    """scikit-learn's two bundled photographs, 427 x 640 in colour, cut into square tiles; no network."""

    name: Literal["photographs"]
    image_size: int = Field(default=64, ge=8, le=427)
    """Edge of a tile in pixels."""
    stride: int | None = Field(default=None, ge=1)
    """Pixels from one tile to the next; null: `image_size`, so that tiles touch. Less overlaps and gives more tiles."""
    limit: int | None = Field(default=None, ge=1)
    """Keep the first so many samples; null keeps all."""


class Downloaded(_Dataset):
    """MNIST or CIFAR-10, fetched once with checksums."""

    name: Literal["mnist", "cifar10"]
    mirrors: list[str] = Field(default_factory=list)
    """Base URLs to try before the built-in ones."""
    limit: int | None = Field(default=None, ge=1)
    """Keep the first so many samples; null keeps all."""


class ImageFolder(_Dataset):
    """One's own images: path/<class>/<image>."""

    name: Literal["imagefolder"]
    path: str
    """Folder with one sub-folder per class, relative to the project."""
    image_size: int = Field(default=32, ge=1, le=4096)
    """Edge in pixels of the square that each image is resized and centre-cropped to."""
    channels: Literal[1, 3] = 3
    limit: int | None = Field(default=None, ge=1)
    """Keep the first so many samples; null keeps all."""

    @property
    def files_read(self) -> list[str]:
        """Files and folders of the user that it is read from."""
        return [self.path]


class Fake(_Dataset):
    """Uniform random samples in [0, 1): `torch.rand(size, *shape)` from the seed; made, not real, data."""

    name: Literal["fake"]
    shape: list[Annotated[int, Field(ge=1, lt=2**31)]] = Field(min_length=1, max_length=8)
    """Shape of one sample."""
    size: int = Field(ge=1, lt=2**40)
    """Number of samples."""
    classes: int = Field(default=10, ge=1, lt=2**31)
    seed: int = Field(default=0, ge=0, lt=2**63)


class Own(_Dataset):
    """What the workload's own `data` returns."""

    name: Literal["own"]
    files: list[str] = Field(default_factory=list)
    """Files and folders that `data` reads, relative to the project: where they change, all is trained again."""

    @property
    def files_read(self) -> list[str]:
        """Files and folders of the user that it is read from."""
        return self.files


Dataset = Annotated[Digits | Photographs | Downloaded | ImageFolder | Fake | Own, Field(discriminator="name")]
