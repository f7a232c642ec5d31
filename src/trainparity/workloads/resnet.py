"""Article D's workload: residual networks (He et al., arXiv 1512.03385) that classify images."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torchvision.models.resnet import BasicBlock, Bottleneck

from trainparity.workloads.base import Batch, Workload
from trainparity.workloads.images import centred
from trainparity.workloads.options.resnet import GROUPS, ResnetOptions
from trainparity.workloads.randomness import SampleRandomness

DEPTHS: dict[int, tuple[type[Any], tuple[int, ...]]] = {
    18: (BasicBlock, (2, 2, 2, 2)),
    50: (Bottleneck, (3, 4, 6, 3)),
    101: (Bottleneck, (3, 4, 23, 3)),
}
"""Kind of block, and how many of it each stage has."""

Norm = Callable[[int], nn.Module]
NORMS: dict[str, Norm] = {"batch": nn.BatchNorm2d, "group": partial(nn.GroupNorm, GROUPS)}


def build(options: ResnetOptions, channels: int) -> nn.Sequential:
    """Build the network for images [B, channels, H, W] out of torchvision's blocks.

    Weights start and are named as in torchvision's own class, which has neither another stem nor another width.
    """
    block, counts = DEPTHS[options.depth]
    norm, width = NORMS[options.norm], options.width
    model = _stem(options.stem, channels, width, norm)
    inputs = width
    for stage, count in enumerate(counts):
        stride = 1 if stage == 0 else 2
        model.add_module(f"layer{stage + 1}", _stage(block, count, inputs, width * 2**stage, stride, norm))
        inputs = width * 2**stage * block.expansion
    model.add_module("avgpool", nn.AdaptiveAvgPool2d(1))
    model.add_module("flatten", nn.Flatten())
    model.add_module("fc", nn.Linear(inputs, options.classes))
    for module in model.modules():
        if isinstance(module, nn.Conv2d):
            nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
    return model


def _stem(stem: str, channels: int, width: int, norm: Norm) -> nn.Sequential:
    model = nn.Sequential()
    if stem == "cifar":
        model.add_module("conv1", nn.Conv2d(channels, width, 3, padding=1, bias=False))
    else:
        model.add_module("conv1", nn.Conv2d(channels, width, 7, stride=2, padding=3, bias=False))
    model.add_module("bn1", norm(width))
    model.add_module("relu", nn.ReLU(inplace=True))
    if stem == "imagenet":
        model.add_module("maxpool", nn.MaxPool2d(3, stride=2, padding=1))
    return model


def _stage(block: type[Any], count: int, inputs: int, width: int, stride: int, norm: Norm) -> nn.Sequential:
    """Build `count` blocks; the first changes the resolution and, by a 1x1 convolution, its shortcut's channels."""
    outputs = width * block.expansion
    shortcut = None
    if stride > 1 or inputs != outputs:
        shortcut = nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride, bias=False), norm(outputs))
    first = block(inputs, width, stride, shortcut, norm_layer=norm)
    return nn.Sequential(first, *(block(outputs, width, norm_layer=norm) for _ in range(count - 1)))


def crop_and_flip(images: Tensor, padding: int, corner: Tensor, flip: Tensor) -> Tensor:
    """Augment images [B, C, H, W].

    Args:
        images: The images.
        padding: Black pixels added on each side.
        corner: Row and column of the padded image where the crop begins, int64 [B, 2]: 0 to twice the padding.
        flip: Whether the crop is mirrored, bool [B].
    """
    count, channels, height, width = images.shape
    crops = images.numpy().copy()
    padded = np.zeros((count, channels, height + 2 * padding, width + 2 * padding), crops.dtype)
    padded[:, :, padding : padding + height, padding : padding + width] = crops
    # Copied image by image: to gather all pixels of a batch by their indices takes more than twice as long.
    for crop, image, (row, column), mirrored in zip(crops, padded, corner.tolist(), flip.tolist(), strict=True):
        window = image[:, row : row + height, column : column + width]
        crop[...] = window[..., ::-1] if mirrored else window
    return torch.from_numpy(crops)


class Resnet(Workload):
    """Cross entropy of a residual network's class scores."""

    Options = ResnetOptions
    options: ResnetOptions

    def build_model(self, sample: Batch) -> nn.Module:
        """Build the network for `images` of shape [B, C, H, W]."""
        return build(self.options, sample["images"].shape[1])

    def draw(self, batch: Batch, randomness: SampleRandomness) -> Batch:
        """Draw where each image is cropped and whether it is mirrored; return the images so augmented."""
        if not self.options.augment:
            return {}
        images = batch["images"]
        padding = min(images.shape[2:]) // 8
        corner = randomness.integers(0, 2 * padding + 1, 2)
        flip = randomness.integers(0, 2) == 1
        return {"images": crop_and_flip(images, padding, corner, flip)}

    def predict(self, model: nn.Module, batch: Batch) -> Tensor:
        """Return class scores [B, classes] of images of 0 to 255."""
        scores: Tensor = model(centred(batch["images"]))
        return scores

    def loss(self, model: nn.Module, batch: Batch) -> Tensor:
        """Sum the cross entropy over samples."""
        return cross_entropy(self.predict(model, batch), batch["labels"], reduction="sum")

    def blocks(self, model: nn.Module) -> Sequence[nn.Module]:
        """Return the residual blocks."""
        return [module for module in model.modules() if isinstance(module, (BasicBlock, Bottleneck))]
