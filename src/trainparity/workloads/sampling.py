"""New images from a trained denoiser: what a person wants to see of `ddpm`."""

from collections.abc import Sequence
from itertools import pairwise

import torch
from torch import Tensor, nn

from trainparity.workloads.noise_schedule import DIFFUSION_STEPS, kept_variance


def sample(
    model: nn.Module, count: int, image_shape: Sequence[int], *, steps: int = DIFFUSION_STEPS, seed: int = 0
) -> Tensor:
    """Draw images on the model's device; the noise comes from the seed, on the CPU.

    All steps are Algorithm 2 of Ho et al. (arXiv 2006.11239), with the variance of its posterior. Fewer, evenly
    spaced from the last to the first, are DDIM without noise (Song et al., arXiv 2010.02502, eta = 0). Estimates of
    the image are clipped to [-1, 1], as Ho et al. do in their code.

    Args:
        model: A `Denoiser`, or what else maps noisy images [B, C, H, W] and diffusion steps [B] to the noise.
        count: Images to draw, all in one batch.
        image_shape: C, H, W.
        steps: 1 to `DIFFUSION_STEPS`; the more, the better and the slower.
        seed: Equal seeds give equal images.

    Returns:
        uint8 [count, C, H, W] on the CPU.

    Raises:
        ValueError: `steps` is out of range.
    """
    if not 1 <= steps <= DIFFUSION_STEPS:
        raise ValueError(f"{steps} steps; allowed: 1 to {DIFFUSION_STEPS}")
    device = next((parameter.device for parameter in model.parameters()), torch.device("cpu"))
    generator = torch.Generator().manual_seed(seed)

    def noise() -> Tensor:
        return torch.randn(count, *image_shape, generator=generator).to(device)

    kept = kept_variance()
    times = torch.linspace(DIFFUSION_STEPS - 1, 0, steps).round().long()
    x = noise()
    with torch.inference_mode():
        for time, (before, after) in zip(times, pairwise([*kept[times].tolist(), 1.0]), strict=True):
            predicted = model(x, time.expand(count).to(device))
            image = ((x - (1 - before) ** 0.5 * predicted) / before**0.5).clamp(-1, 1)
            direction = (x - before**0.5 * image) / (1 - before) ** 0.5  # the noise that the clipped image leaves
            # DDIM's equation 12: at this variance, from each step to the next, it is Ho et al.'s posterior.
            variance = (1 - after) / (1 - before) * (1 - before / after) if steps == DIFFUSION_STEPS else 0.0
            x = after**0.5 * image + (1 - after - variance) ** 0.5 * direction + variance**0.5 * noise()
    return x.add(1).mul(127.5).round().to("cpu", torch.uint8)
