"""The noise that each step of the diffusion adds (Ho et al. 2020, https://arxiv.org/abs/2006.11239)."""

import torch
from torch import Tensor

DIFFUSION_STEPS = 1000


def kept_variance() -> Tensor:
    """Return the part of an image's variance that each diffusion step leaves: float64 [`DIFFUSION_STEPS`]."""
    betas = torch.linspace(1e-4, 2e-2, DIFFUSION_STEPS, dtype=torch.float64)
    return torch.cumprod(1 - betas, dim=0)
