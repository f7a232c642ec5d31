"""The state of the generators that a forward pass can draw from."""

import random
import sys
import zlib

import torch
from torch import nn

from trainparity.parity.recording.formats import device_of
from trainparity.parity.recording.seeds import derived_seed
from trainparity.parity.recording.sketch import row_digests


def random_state(model: nn.Module) -> int:
    """Hash the state of the generators that a forward pass can draw from."""
    state = [torch.get_rng_state()]
    device = device_of(model)
    if device.type == "cuda":
        state.append(torch.cuda.get_rng_state(device))
    return int(sum(int(row_digests(part[None])) * (2 * i + 1) for i, part in enumerate(state)) % 2**62)


def state_outside_of_torch() -> int:
    """Hash the state of Python's own generator, and of NumPy's global one where the program has imported it."""
    _, state, of_gauss = random.getstate()
    numbers = [hash(state), hash(of_gauss or 0.0)]
    if numpy := sys.modules.get("numpy"):
        found = numpy.random.get_state(legacy=False)["state"]
        numbers += [zlib.crc32(found["key"].tobytes()), found["pos"]]
    return derived_seed(*numbers)
