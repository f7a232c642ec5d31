"""Whether a pass belongs to a next evaluation of the step, with weights that the loop has moved since the first."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from trainparity.parity.recording.kinds import is_dtensor
from trainparity.parity.recording.passes import Pass
from trainparity.parity.recording.tensors import is_strided


class Evaluations:
    """Tells passes of a step's first evaluation from those of the next."""

    def __init__(self, model: nn.Module) -> None:
        """Look at a plain model."""
        self._model = model
        self.begin()

    def begin(self) -> None:
        """Look at a new step."""
        self._weights: Tensor | None = None

    def again(self, found: Pass, earlier: Sequence[Pass]) -> bool:
        """Tell whether samples of this step pass again after the loop has moved the weights, as SAM does.

        Or whether other weights, made of the model's, take their place after a first pass, as MAML's.
        """
        lengths = _lengths(self._model)
        if self._weights is None or lengths is None or torch.equal(lengths, self._weights):
            self._weights = lengths
            return False
        if any(weight.grad_fn is not None for weight in self._model.parameters()):
            return True
        seen = [one.samples for one in earlier if one.samples is not None]
        return found.samples is not None and any(torch.equal(found.samples, samples) for samples in seen)


def _lengths(model: nn.Module) -> Tensor | None:
    """Return the norm of each trained parameter, by which a change is seen; None where they are sharded.

    Not of sparse ones, which PyTorch 2.11 has no norm for in a list.
    """
    trained = (parameter for parameter in model.parameters() if parameter.requires_grad)
    weights = [parameter.detach() for parameter in trained if is_strided(parameter)]
    if not weights or any(is_dtensor(weight) or weight.device != weights[0].device for weight in weights):
        return None
    return torch.stack([length.double() for length in torch._foreach_norm(weights)])
