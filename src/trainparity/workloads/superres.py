"""Article E's workload: super-resolution by residual blocks in residual groups (arXiv 1807.02758) with TanhExp.

The structure is that of the author's own network (github.com/ImpactCrater/SRNet-DR); at scale `article` it has
exactly the article's 364,931,587 parameters. One thing differs: its convolutions pad with zeros. The author's repeat
the edge, and the gradient of that has no deterministic kernel on CUDA.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional

from trainparity.validation import ParamsError
from trainparity.workloads.base import Batch, Workload
from trainparity.workloads.options.superres import CELL, SuperResOptions
from trainparity.workloads.randomness import SampleRandomness
from trainparity.workloads.tanhexp import tanhexp, tanhexp_recomputed

CHANNELS_PER_GROUP = 24
_HALF_STEP = 0.5 / 255
"""Half the distance of two grey levels; it keeps the logits of black and white finite."""


class Scale(NamedTuple):
    """Size of the network."""

    channels: int
    groups: int
    blocks: int
    """Residual blocks of each group."""
    fine_channels: int
    """Channels at twice and four times the cells' resolution."""


SCALES = {"smoke": Scale(24, 1, 2, 8), "laptop": Scale(48, 3, 3, 16), "article": Scale(384, 16, 8, 128)}

Activation = Callable[[Tensor], Tensor]
ACTIVATIONS: dict[str, Activation] = {"function": tanhexp, "recomputed": tanhexp_recomputed}


class TanhExp(nn.Module):
    """A form of TanhExp as a layer."""

    def __init__(self, activation: Activation) -> None:
        super().__init__()
        self.activation = activation

    def forward(self, x: Tensor) -> Tensor:
        """Map a tensor to one of the same shape."""
        return self.activation(x)


class ResidualBlock(nn.Module):
    """Two 3x3 convolutions, each with its activation; the result is added to the input."""

    def __init__(self, channels: int, activation: Activation) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(channels, channels, 3, padding=1),
            TanhExp(activation),
            nn.Conv2d(channels, channels, 3, padding=1),
            TanhExp(activation),
        )

    def forward(self, x: Tensor) -> Tensor:
        """Map [B, channels, h, w] to the same shape."""
        y: Tensor = x + self.body(x)
        return y


class Residual(nn.Module):
    """A sequence of parts, then a 3x3 convolution and its activation; the result is added to the input."""

    def __init__(self, parts: Sequence[nn.Module], channels: int, activation: Activation) -> None:
        super().__init__()
        self.parts = nn.Sequential(*parts)
        self.leave = nn.Sequential(nn.Conv2d(channels, channels, 3, padding=1), TanhExp(activation))

    def forward(self, x: Tensor) -> Tensor:
        """Map [B, channels, h, w] to the same shape."""
        y: Tensor = x + self.leave(self.parts(x))
        return y


class Enlarger(nn.Module):
    """Enlarge images: bicubic, then residual groups on cells of 4x4 pixels, then back to pixels by PixelShuffle."""

    def __init__(self, image_channels: int, options: SuperResOptions) -> None:
        super().__init__()
        scale, activation = SCALES[options.scale], ACTIVATIONS[options.activation]
        channels, fine = scale.channels, scale.fine_channels
        self.upscale, self.global_residual = options.upscale, options.global_residual
        self.enter = nn.Sequential(
            nn.PixelUnshuffle(CELL),
            nn.Conv2d(image_channels * CELL**2, channels, 3, padding=1, bias=False),
            nn.GroupNorm(channels // CHANNELS_PER_GROUP, channels),
            TanhExp(activation),
        )
        groups = [
            Residual([ResidualBlock(channels, activation) for _ in range(scale.blocks)], channels, activation)
            for _ in range(scale.groups)
        ]
        self.trunk = Residual(groups, channels, activation)
        self.leave = nn.Sequential(
            nn.Conv2d(channels, 4 * fine, 3, padding=1),
            nn.PixelShuffle(2),
            TanhExp(activation),
            nn.Conv2d(fine, 4 * fine, 3, padding=1),
            nn.PixelShuffle(2),
            TanhExp(activation),
            nn.Conv2d(fine, image_channels, 1),
        )

    def forward(self, small: Tensor) -> Tensor:
        """Map images [B, C, h, w] in [0, 1] to [B, C, upscale h, upscale w]; that size must be a multiple of 4."""
        large = functional.interpolate(small, scale_factor=self.upscale, mode="bicubic")
        image: Tensor = self.leave(self.trunk(self.enter(large)))
        if self.global_residual:  # the sigmoid's argument is an image's logit
            image = image + large.logit(eps=_HALF_STEP)
        return image.sigmoid()


class SuperRes(Workload):
    """Enlarge images that were shrunk by averaging; the loss is the squared error of pixels and second differences."""

    Options = SuperResOptions
    options: SuperResOptions

    def build_model(self, sample: Batch) -> nn.Module:
        """Build the network for `images` of shape [B, C, H, W].

        Raises:
            ParamsError: the images are smaller than the crop.
        """
        _, image_channels, height, width = sample["images"].shape
        if min(height, width) < self.options.crop:
            raise ParamsError(
                f"workload.options.crop: {self.options.crop} pixels of images that are {height} x {width}; "
                f"allowed: a multiple of {CELL} up to {min(height, width)}"
            )
        return Enlarger(image_channels, self.options)

    def draw(self, batch: Batch, randomness: SampleRandomness) -> Batch:
        """Cut a square at a random place out of each image: `images` [B, C, crop, crop]."""
        images, crop = batch["images"], self.options.crop
        tops, lefts = (randomness.integers(0, edge - crop + 1).tolist() for edge in images.shape[-2:])
        crops = [
            image[:, top : top + crop, left : left + crop] for image, top, left in zip(images, tops, lefts, strict=True)
        ]
        return {"images": torch.stack(crops)}

    def loss(self, model: nn.Module, batch: Batch) -> Tensor:
        """Return the sum over samples of the squared errors, each averaged over a sample's pixels.

        Second differences are linear: those of the error are the error of the images' own. Their kernel is the
        column 1, -2, 1 and its transpose.
        """
        large = batch["images"].float() / 255
        error = model(functional.avg_pool2d(large, self.options.upscale)) - large
        parts = (error, error.diff(n=2, dim=-2), error.diff(n=2, dim=-1))
        return torch.stack([part.square().flatten(1).mean(1).sum() for part in parts]).sum()

    def picture(self, model: nn.Module, samples: Batch) -> Tensor:
        """Return a grid of images: enlarged by nearest neighbour, bicubic interpolation and the model, and originals.

        Its columns are four samples, from each quarter of `samples` the one with most detail.
        """
        from torchvision.utils import make_grid

        images = torch.stack([part[_detail(part).argmax()] for part in samples["images"].tensor_split(4) if len(part)])
        edge = min(images.shape[-2:]) // (CELL * self.options.upscale) * CELL * self.options.upscale
        images = images[..., :edge, :edge]
        small = functional.avg_pool2d(images.float(), self.options.upscale).round()
        times = float(self.options.upscale)
        rows = [
            functional.interpolate(small, scale_factor=times, mode="nearest"),
            functional.interpolate(small, scale_factor=times, mode="bicubic").clamp(0, 255).round(),
            enlarge(model, small.to(torch.uint8)),
            images,
        ]
        columns = [image for column in zip(*(row.to(torch.uint8) for row in rows), strict=True) for image in column]
        grid: Tensor = make_grid(columns, nrow=len(rows), padding=2, pad_value=255)
        return grid

    def blocks(self, model: nn.Module) -> Sequence[nn.Module]:
        """Return the residual groups."""
        assert isinstance(model, Enlarger)
        return list(model.trunk.parts)


def _detail(images: Tensor) -> Tensor:
    """Return how much neighbouring pixels differ in each image [N, C, H, W]: float32 [N]."""
    large = images.float()
    return large.diff(dim=-1).abs().flatten(1).mean(1) + large.diff(dim=-2).abs().flatten(1).mean(1)


def enlarge(model: nn.Module, images: Tensor) -> Tensor:
    """Enlarge uint8 images [N, C, h, w] by an `Enlarger`; the enlarged height and width must be multiples of 4.

    Returns:
        uint8 [N, C, upscale h, upscale w] on the CPU.
    """
    device = next(model.parameters()).device
    with torch.inference_mode():
        large: Tensor = model(images.to(device) / 255)
    return large.mul(255).round().to("cpu", torch.uint8)
