"""What makes a twin: weights, outputs of modules and gradients on their way back that differ by rounding."""

import torch
from torch import nn

from trainparity.parity.recording.formats import UNIT_ROUNDOFF, number_format, where_float64_is
from trainparity.parity.recording.groups import part
from trainparity.parity.recording.kinds import is_dtensor
from trainparity.parity.recording.seeds import derived_seed


def perturb(model: nn.Module, unit_roundoff: float, seed: int) -> None:
    """Move every weight by half an ulp up or down at random, in place.

    In a precision below fp32 the ulp is that precision's, as its products round that coarsely. Ranks that hold
    the same weights move them alike; shards are moved where they lie.
    """
    with torch.no_grad():
        for index, parameter in enumerate(model.parameters()):
            local = parameter.to_local() if is_dtensor(parameter) else parameter
            place = part(parameter) if is_dtensor(parameter) else 0
            generator = torch.Generator().manual_seed(derived_seed(seed, index, place))
            signs = torch.randint(0, 2, local.shape, generator=generator, dtype=torch.int8) * 2 - 1
            whole = where_float64_is(local)
            local.copy_(whole.double() * (1 + unit_roundoff * signs.double().to(whole.device)))


class Noise:
    """Moves each number of a tensor by one unit in its last place, up or down at random.

    Another order of a sum rounds each of its terms otherwise. Where terms nearly cancel, the sum moves by many times
    its own last place, and twins whose terms are all equal would not show it.
    """

    def __init__(self, seed: int, tf32: bool) -> None:
        """`seed` is that of one step: an interrupted twin that resumes makes the same noise again."""
        self._seed, self._count = seed, 0
        self._units = {torch.float32: UNIT_ROUNDOFF["tf32"]} if tf32 else {}

    def __call__(self, tensor: torch.Tensor) -> torch.Tensor:
        """Return the moved tensor, of the same shape and dtype."""
        self._count += 1
        unit = self._units.get(tensor.dtype, number_format(tensor.dtype).unit_roundoff)
        generator = torch.Generator(tensor.device).manual_seed(derived_seed(self._seed, self._count))
        drawn = torch.randint(0, 2, tensor.shape, generator=generator, device=tensor.device, dtype=torch.int8)
        exact = tensor if tensor.dtype == torch.float64 else tensor.float()
        return (exact * (1 + 2 * unit * (2 * drawn - 1))).to(tensor.dtype)
