"""Small models of the kinds that people train, on scikit-learn's digits: a float image [B, 1, 8, 8] each."""

from collections.abc import Callable
from functools import cache

import torch
from sklearn.datasets import load_digits
from torch import Tensor, nn

NUM_SAMPLES = 192
"""Kept small and even: an epoch is a few steps."""


@cache
def digits() -> tuple[Tensor, Tensor]:
    """Return images, float32 [N, 1, 8, 8] from 0 to 1, and labels, int64 [N]."""
    found = load_digits()
    images = torch.from_numpy(found.images[:NUM_SAMPLES]).float()[:, None] / 16
    return images, torch.from_numpy(found.target[:NUM_SAMPLES]).long()


def mlp() -> nn.Module:
    """Two hidden layers."""
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 24), nn.Tanh(), nn.Linear(24, 24), nn.ReLU(), nn.Linear(24, 10))


def mlp_dropout() -> nn.Module:
    """A hidden layer, half of it dropped at random."""
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 32), nn.ReLU(), nn.Dropout(0.5), nn.Linear(32, 10))


def conv_groupnorm() -> nn.Module:
    """Convolutions with a normalisation of each sample by itself."""
    return _convolutional(lambda channels: nn.GroupNorm(2, channels))


def conv_batchnorm() -> nn.Module:
    """Convolutions with a normalisation over the batch."""
    return _convolutional(nn.BatchNorm2d)


def _convolutional(norm: Callable[[int], nn.Module]) -> nn.Module:
    first, second = nn.Conv2d(1, 8, 3, padding=1), nn.Conv2d(8, 8, 3, padding=1)
    # No max-pooling: where two values are nearly equal, rounding may choose the other.
    return nn.Sequential(
        first, norm(8), nn.SiLU(), second, norm(8), nn.SiLU(), nn.AvgPool2d(4), nn.Flatten(), nn.Linear(32, 10)
    )


class Transformer(nn.Module):
    """An encoder block over the image's rows as eight tokens, its readout tied to its class embedding."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Linear(8, 16)
        self.position = nn.Parameter(torch.randn(8, 16) * 0.1)
        self.block = nn.TransformerEncoderLayer(16, 2, 32, dropout=0.0, batch_first=True, norm_first=True)
        self.classes = nn.Embedding(10, 16)
        self.readout = nn.Linear(16, 10, bias=False)
        self.readout.weight = self.classes.weight

    def forward(self, images: Tensor) -> Tensor:
        """Map images [B, 1, 8, 8] to logits [B, 10]."""
        tokens = self.embed(images.squeeze(1)) + self.position
        logits: Tensor = self.readout(self.block(tokens).mean(1))
        return logits


class Coloured(nn.Module):
    """A vision model of torchvision's on images with one channel, which it is given three times."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, images: Tensor) -> Tensor:
        """Map images [B, 1, 8, 8] to logits [B, 10]."""
        logits: Tensor = self.model(images.expand(-1, 3, -1, -1))
        return logits


def swin() -> nn.Module:
    """A Swin Transformer: attention in shifted windows."""
    from torchvision.models.swin_transformer import SwinTransformer

    return Coloured(SwinTransformer([2, 2], 16, [2, 2], [2, 2], [2, 2], stochastic_depth_prob=0.0, num_classes=10))


def convnext() -> nn.Module:
    """A ConvNeXt: large depthwise convolutions and layer normalisation."""
    from torchvision.models.convnext import CNBlockConfig, ConvNeXt

    return Coloured(ConvNeXt([CNBlockConfig(16, 32, 1), CNBlockConfig(32, None, 1)], num_classes=10))


MODELS: dict[str, Callable[[], nn.Module]] = {
    "mlp": mlp,
    "mlp-dropout": mlp_dropout,
    "conv-groupnorm": conv_groupnorm,
    "conv-batchnorm": conv_batchnorm,
    "transformer": Transformer,
    "swin": swin,
    "convnext": convnext,
}
