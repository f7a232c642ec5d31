"""What makes a twin: weights that differ by rounding."""

import torch
from torch import nn
from torch.distributed.tensor import DTensor

from trainparity.parity.recording.formats import where_float64_is
from trainparity.parity.recording.groups import part
from trainparity.parity.recording.seeds import derived_seed


def perturb(model: nn.Module, unit_roundoff: float, seed: int) -> None:
    """Move every weight by half an ulp up or down at random, in place.

    In a precision below fp32 the ulp is that precision's, as its products round that coarsely. Ranks that hold
    the same weights move them alike; shards are moved where they lie.
    """
    with torch.no_grad():
        for index, parameter in enumerate(model.parameters()):
            local = parameter.to_local() if isinstance(parameter, DTensor) else parameter
            place = part(parameter) if isinstance(parameter, DTensor) else 0
            generator = torch.Generator().manual_seed(derived_seed(seed, index, place))
            signs = torch.randint(0, 2, local.shape, generator=generator, dtype=torch.int8) * 2 - 1
            whole = where_float64_is(local)
            local.copy_(whole.double() * (1 + unit_roundoff * signs.double().to(whole.device)))
