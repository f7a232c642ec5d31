"""The rounding of biases' gradients whose terms cancel, which twins need not show."""

import torch
from torch import Tensor

from trainparity.parity.distance import norms
from trainparity.parity.recording.signs import MEAN_LENGTH, signs_used
from trainparity.parity.recording.trace import Trace


def of_cancelling_biases(reference: Trace) -> Tensor:
    """Return the floor of biases' gradients whose terms cancel: float64 [T, P + 1]; zero for others.

    As what a discriminator gets from real and from generated samples does: what is left is the rounding of both sums.
    Of terms that add up at random a gradient is as long as the root of their squares.
    """
    shapes, seen = list(reference.layout.parameters), reference.layout.activations
    floor = torch.zeros(len(reference.layout.steps), len(shapes) + 1, dtype=torch.float64)
    lengths, terms = norms(reference, "gradient").double(), _terms(reference)
    for place, name in enumerate(shapes):
        if name.endswith(".bias") and (module := name.removesuffix(".bias")) in seen:
            longer = (terms[:, seen.index(module)] / lengths[:, place]).nan_to_num(0.0, posinf=0.0)
            floor[:, place] = torch.where(longer > 1, _SUMS * reference.layout.unit_roundoff * longer, 0.0)
    return floor


def _terms(reference: Trace) -> Tensor:
    """Return the root of the squares of what each activation's gradient holds: float64 [T, A]."""
    per_sample = reference.arrays["activation/numbers"].double() / reference.arrays["num_samples"][:, None]
    signs = torch.tensor([[signs_used(round(count)) for count in row] for row in per_sample.nan_to_num(0.0).tolist()])
    lengths: Tensor = torch.linalg.vector_norm(reference.arrays["activation_gradient/sketch"], dim=2)
    return lengths / (MEAN_LENGTH * signs.sqrt())


_SUMS = 4
"""Roundings of sums of real and of made samples, each as long as a few times that root; 3 were seen."""
