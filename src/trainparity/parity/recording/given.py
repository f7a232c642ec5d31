"""Gradients that no backward pass brings: a loop copies them, as from a model in bf16 to fp32 weights."""

from collections.abc import Sequence

import torch
from torch import Tensor

from trainparity.parity.recording.formats import NumberFormat, as_real, number_format
from trainparity.parity.recording.kinds import is_dtensor
from trainparity.parity.recording.perturb import Noise
from trainparity.parity.recording.tensors import is_strided


class GivenGradients:
    """Looks at them once a step: before they are clipped, or at the update."""

    def __init__(self) -> None:
        self.format: NumberFormat | None = None
        """The half format that they were computed in, where fp32 numbers show it."""
        self._known = False
        self.begin(None)

    def begin(self, noise: Noise | None) -> None:
        """Look at a new step; a twin's `noise` rounds its gradients otherwise, as nothing before did."""
        self._noise, self._seen = noise, False

    def see(self, parameters: Sequence[Tensor], *, made: bool) -> None:
        """Find the format of gradients that no backward pass has `made`, once; a twin's are rounded otherwise."""
        gradients = [p.grad.detach() for p in parameters if p.grad is not None]
        plain = [g for g in gradients if not is_dtensor(g) and is_strided(g)]
        if made or self._seen or not plain:
            return
        self._seen = True
        if not self._known:
            self.format, self._known = _format_of(plain), True
        for gradient in plain if self._noise else ():
            gradient.copy_(self._noise(gradient, self.format.unit_roundoff if self.format else 0.0))  # type: ignore[misc]


def _format_of(gradients: Sequence[Tensor]) -> NumberFormat | None:
    """Return the half format that all numbers of fp32 gradients have; None if they have more digits, or are few."""
    found = [as_real(gradient).flatten() for gradient in gradients if gradient.numel()]
    if not found or any(g.dtype != torch.float32 for g in found):
        return None
    for dtype in (torch.bfloat16, torch.float16):
        if all(torch.equal(g, g.to(dtype).float()) for g in found):
            many = len(torch.unique(torch.cat(found).abs())) >= _MANY
            return number_format(dtype) if many else None
    return None


class ArrivingGradients:
    """Looks at what a step's first backward pass brings to matrices: in a half format where products were made in it.

    So it is under an autocast that no hook sees, as inside of what `torch.compile` has compiled. Of two steps: data of
    few digits and weights of zero may make such a gradient once.
    """

    def __init__(self) -> None:
        self._formats: list[list[NumberFormat | None]] = []

    @property
    def format(self) -> NumberFormat | None:
        """That format, where most matrices' gradients show it in each step."""
        half = [[found for found in of_step if found] for of_step in self._formats]
        shown = all(2 * len(found) > len(of_step) for found, of_step in zip(half, self._formats, strict=True))
        return half[-1][0] if half and shown else None

    def begin(self) -> bool:
        """Tell whether a step is to be looked at, which begins."""
        if len(self._formats) == _STEPS:
            return False
        self._formats.append([])
        return True

    def see(self, gradient: Tensor) -> None:
        """Look at a gradient as it arrives."""
        plain = gradient.ndim > 1 and gradient.dtype == torch.float32 and is_strided(gradient)
        if not plain or is_dtensor(gradient):
            return
        some = gradient.detach().flatten()[:_ENOUGH]
        if len(torch.unique(some)) >= _MANY:
            self._formats[-1].append(_format_of([some]))


_STEPS = 2
"""Steps that are looked at."""

_ENOUGH = 4096
"""Numbers of a gradient that are looked at."""

_MANY = 64
"""Different numbers that have few digits by no chance."""
