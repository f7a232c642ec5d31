"""The state of the generators that a forward pass can draw from."""

import torch
from torch import nn

from trainparity.parity.recording.sketch import row_digests


def random_state(model: nn.Module) -> int:
    """Hash the state of the generators that a forward pass can draw from."""
    state = [torch.get_rng_state()]
    device = next((p.device for p in model.parameters()), torch.device("cpu"))
    if device.type == "cuda":
        state.append(torch.cuda.get_rng_state(device))
    return int(sum(int(row_digests(part[None])) * (2 * i + 1) for i, part in enumerate(state)) % 2**62)
