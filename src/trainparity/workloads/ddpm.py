"""Article A's workload: a denoising diffusion model (Ho et al., arXiv 2006.11239) of small images."""

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn

from trainparity.validation import Section
from trainparity.workloads import sampling
from trainparity.workloads.base import Batch, Workload
from trainparity.workloads.images import centred
from trainparity.workloads.noise_schedule import DIFFUSION_STEPS, kept_variance
from trainparity.workloads.options.ddpm import DdpmOptions
from trainparity.workloads.randomness import SampleRandomness

GROUPS = 8


class Scale(NamedTuple):
    """Size of the denoiser."""

    channels: int
    layers: int
    time_channels: int


SCALES = {"tiny": Scale(32, 6, 64), "article": Scale(256, 8, 256)}


class TimeEmbedding(nn.Module):
    """Sinusoidal embedding of the diffusion step, then two 1x1 convolutions."""

    def __init__(self, embedding: int, channels: int) -> None:
        super().__init__()
        frequencies = torch.exp(-math.log(10_000) * torch.arange(embedding // 2) / (embedding // 2 - 1))
        self.register_buffer("frequencies", frequencies)
        self.project = nn.Sequential(nn.Conv2d(embedding, channels, 1), nn.SiLU(), nn.Conv2d(channels, channels, 1))

    def forward(self, time: Tensor) -> Tensor:
        """Embed diffusion steps [B] as [B, channels, 1, 1]."""
        angles = time[:, None] * self.get_buffer("frequencies")
        embedding: Tensor = self.project(torch.cat([angles.sin(), angles.cos()], dim=1)[:, :, None, None])
        return embedding


class Block(nn.Module):
    """Residual dilated 3x3 convolution of the input plus the time embedding."""

    def __init__(self, channels: int, dilation: int, normalised: bool) -> None:
        super().__init__()
        self.conv = nn.Conv2d(channels, channels, 3, padding="same", dilation=dilation)
        self.head = nn.Sequential(nn.GroupNorm(GROUPS, channels), nn.SiLU()) if normalised else nn.Identity()

    def forward(self, x: Tensor, time: Tensor) -> Tensor:
        """Map [B, channels, H, W] and [B, channels, 1, 1] to [B, channels, H, W]."""
        x = x + time
        y: Tensor = self.head(x + self.conv(x))
        return y


class Denoiser(nn.Module):
    """Predict the noise in an image: 7x7 convolution, residual blocks, 3x3 convolution."""

    def __init__(self, image_channels: int, scale: Scale) -> None:
        super().__init__()
        self.time = TimeEmbedding(scale.time_channels, scale.channels)
        self.enter = nn.Conv2d(image_channels, scale.channels, 7, padding="same")
        self.blocks = nn.ModuleList(
            Block(scale.channels, dilation=3 ** ((i - 1) // 2) if i else 1, normalised=i > 0)
            for i in range(scale.layers)
        )
        self.leave = nn.Conv2d(scale.channels, image_channels, 3, padding="same")

    def forward(self, x: Tensor, time: Tensor) -> Tensor:
        """Map noisy images [B, C, H, W] and diffusion steps [B] to the noise [B, C, H, W]."""
        embedding = self.time(time)
        y = self.enter(x)
        for block in self.blocks:
            y = block(y, embedding)
        noise: Tensor = self.leave(y)
        return noise


def _magnified(image: Tensor, times: int = 6) -> Tensor:
    """Return an image [C, H, W] with each pixel as a square of `times` pixels."""
    return image.repeat_interleave(times, dim=1).repeat_interleave(times, dim=2)


class Ddpm(Workload):
    """Mean squared error on the noise; linear beta schedule 1e-4..2e-2 over 1000 steps."""

    Options = DdpmOptions
    options: DdpmOptions

    def __init__(self, options: Section) -> None:
        super().__init__(options)
        kept = kept_variance()
        self._signal, self._noise = kept.sqrt().float(), (1 - kept).sqrt().float()

    def build_model(self, sample: Batch) -> nn.Module:
        """Build the denoiser for `images` of shape [B, C, H, W]."""
        return Denoiser(sample["images"].shape[1], SCALES[self.options.scale])

    def draw(self, batch: Batch, randomness: SampleRandomness) -> Batch:
        """Draw each sample's diffusion step [B] and noise [B, C, H, W], with the step's two weights [B]."""
        time = randomness.integers(0, DIFFUSION_STEPS)
        noise = randomness.normal(*batch["images"].shape[1:])
        return {"time": time, "noise": noise, "signal": self._signal[time], "sigma": self._noise[time]}

    def loss(self, model: nn.Module, batch: Batch) -> Tensor:
        """Sum over samples the squared error on the noise, averaged over a sample's pixels."""
        noise = batch["noise"]
        clean = centred(batch["images"])
        noisy = batch["signal"][:, None, None, None] * clean + batch["sigma"][:, None, None, None] * noise
        error = (model(noisy, batch["time"]) - noise).square()
        loss: Tensor = error.flatten(1).mean(1).sum()
        return loss

    def picture(self, model: nn.Module, samples: Batch) -> Tensor:
        """Draw 40 new images, in five rows."""
        from torchvision.utils import make_grid

        drawn = sampling.sample(model, 40, samples["images"].shape[1:], steps=DIFFUSION_STEPS)
        return _magnified(make_grid(drawn, nrow=8, padding=1, pad_value=96))

    def blocks(self, model: nn.Module) -> Sequence[nn.Module]:
        """Return the residual blocks."""
        assert isinstance(model, Denoiser)
        return list(model.blocks)
