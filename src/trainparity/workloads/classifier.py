"""Article C's workload: image classifiers whose layers torchvision has, Swin Transformer and ConvNeXt."""

from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor, nn
from torch.nn.functional import cross_entropy, interpolate
from torchvision.models.convnext import CNBlock, CNBlockConfig, ConvNeXt
from torchvision.models.swin_transformer import SwinTransformer, SwinTransformerBlock

from trainparity.workloads.base import Batch, Workload
from trainparity.workloads.images import centred
from trainparity.workloads.options.classifier import ClassifierOptions

PATCH = 4
"""Pixels along the edge of what becomes one token; torchvision's ConvNeXt knows no other."""


@dataclass(frozen=True)
class Swin:
    """Size of a Swin Transformer (Liu et al., arXiv 2103.14030)."""

    width: int
    """Channels of the first stage, doubled in each further one."""
    depths: tuple[int, ...]
    """Blocks of each stage."""
    heads: tuple[int, ...]
    window: int

    def build(self, classes: int, stochastic_depth: float) -> nn.Module:
        """Build the model with initial weights."""
        model: nn.Module = SwinTransformer(
            patch_size=[PATCH, PATCH],
            embed_dim=self.width,
            depths=list(self.depths),
            num_heads=list(self.heads),
            window_size=[self.window, self.window],
            stochastic_depth_prob=stochastic_depth,
            num_classes=classes,
        )
        return model


@dataclass(frozen=True)
class ConvNext:
    """Size of a ConvNeXt (Liu et al., arXiv 2201.03545)."""

    width: int
    """Channels of the first stage, doubled in each further one."""
    depths: tuple[int, ...]
    """Blocks of each stage."""

    def build(self, classes: int, stochastic_depth: float) -> nn.Module:
        """Build the model with initial weights."""
        widths = [self.width * 2**stage for stage in range(len(self.depths))]
        stages = [CNBlockConfig(*stage) for stage in zip(widths, [*widths[1:], None], self.depths, strict=True)]
        model: nn.Module = ConvNeXt(stages, stochastic_depth_prob=stochastic_depth, num_classes=classes)
        return model


SIZES: dict[str, dict[str, Swin | ConvNext]] = {
    "smoke": {
        "swin-t": Swin(16, (1, 1), (2, 4), window=4),
        "swin-b": Swin(24, (1, 2), (3, 6), window=4),
        "convnext-l": ConvNext(32, (1, 2)),
    },
    "laptop": {
        "swin-t": Swin(24, (2, 2), (3, 6), window=4),
        "swin-b": Swin(48, (2, 4), (6, 12), window=4),
        "convnext-l": ConvNext(96, (2, 6)),
    },
    "article": {
        "swin-t": Swin(96, (2, 2, 6, 2), (3, 6, 12, 24), window=7),
        "swin-b": Swin(128, (2, 2, 18, 2), (4, 8, 16, 32), window=7),
        "convnext-l": ConvNext(192, (3, 3, 27, 3)),
    },
}
"""By scale and model. `article` has the published sizes, which are torchvision's. The others keep two of the four
stages, so that they compile in seconds too; their windows cut images of 32 pixels into four."""


class Classifier(Workload):
    """Cross entropy of the class scores; grey images are shown to all three colour channels."""

    Options = ClassifierOptions
    options: ClassifierOptions

    def build_model(self, sample: Batch) -> nn.Module:
        """Build the model.

        Raises:
            ValueError: the images are too small to be halved between all stages.
        """
        options = self.options
        size = SIZES[options.scale][options.model]
        edge, smallest = options.image_size or min(sample["images"].shape[2:]), PATCH * 2 ** (len(size.depths) - 1)
        if edge < smallest:
            raise ValueError(
                f"images of {edge} pixels are too small for {options.model} at scale {options.scale}; "
                f"set workload.options.image_size to {smallest} or more"
            )
        return size.build(options.classes, options.stochastic_depth)

    def predict(self, model: nn.Module, batch: Batch) -> Tensor:
        """Return class scores [B, classes] of images of 0 to 255 with one or three channels."""
        images, size = centred(batch["images"].expand(-1, 3, -1, -1)), self.options.image_size
        if size is not None:
            images = interpolate(images, size=(size, size), mode="bilinear", align_corners=False)
        scores: Tensor = model(images)
        return scores

    def loss(self, model: nn.Module, batch: Batch) -> Tensor:
        """Sum the cross entropy over samples."""
        return cross_entropy(self.predict(model, batch), batch["labels"], reduction="sum")

    def blocks(self, model: nn.Module) -> Sequence[nn.Module]:
        """Return the Swin or ConvNeXt blocks."""
        return [module for module in model.modules() if isinstance(module, (SwinTransformerBlock, CNBlock))]
