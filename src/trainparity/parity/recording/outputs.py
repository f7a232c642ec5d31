"""What the loop gets from the model: recorded, and told of when a backward pass comes back to it."""

from collections.abc import Callable, Sequence
from functools import partial

from torch import Tensor

from trainparity.parity.recording.apart import unseen
from trainparity.parity.recording.later import Later
from trainparity.parity.recording.names import numbered
from trainparity.parity.recording.passes import Pass
from trainparity.parity.recording.perturb import Noise
from trainparity.parity.recording.seen import Seen


class Outputs:
    """Looks at the tensors that passes return."""

    def __init__(self, sketches: Later, seen: Seen) -> None:
        self._sketches, self._seen = sketches, seen
        self.on_backward: Callable[[], None] | None = None
        """Called at the start of each backward pass through what the model returned."""

    def see(self, found: Pass, name: str, made: Sequence[Tensor], noise: Noise | None) -> None:
        """Look at the tensors that a pass has returned under a name; a twin's `noise` moves gradients."""
        for place, tensor in enumerate(made):
            each = self._see_one(found, numbered(name, place), tensor, noise)
            found.returned.append(each)
            if tensor.requires_grad:
                reached = partial(self._reached, found, each if tensor.ndim else None)
                found.hook(tensor, reached)

    def _see_one(self, found: Pass, name: str, tensor: Tensor, noise: Noise | None) -> str:
        """Return the name that a tensor is recorded by, if it is."""
        if name in found.activations or found.see_tensor(name, tensor, self._sketches, noise):
            self._seen.output(found, name)
        elif sums := found.see_returned(name, tensor, self._sketches):
            name = sums
        else:
            return name
        self._seen.note(name)
        return name

    @unseen
    def _reached(self, found: Pass, name: str | None, gradient: Tensor | None) -> None:
        """Tell of the backward pass when it reaches what the model returned; `name` is None for a loss.

        DDP hands a gradient of None back of what the loss leaves out.
        """
        if gradient is None:
            return
        if name and not found.handed_on:
            self._seen.output(found, name)
        found.reach()
        if self.on_backward:
            self.on_backward()
