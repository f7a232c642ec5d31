"""Wall time of work on a device."""

import torch


def synchronise(device: torch.device) -> None:
    """Wait until the device has done what was asked of it; the CPU always has."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    elif device.type == "mps":
        torch.mps.synchronize()
