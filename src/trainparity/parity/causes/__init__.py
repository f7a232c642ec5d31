"""One test for each cause of a difference, on recorded evidence; they are tried in the order of `CAUSES`."""

from collections.abc import Callable

from trainparity.parity.causes import before, gradient, update
from trainparity.parity.causes.finding import Cause, Evidence, Finding
from trainparity.parity.difference import Difference

__all__ = ["CAUSES", "Cause", "Evidence", "Finding"]

CAUSES: tuple[Callable[[Difference], Finding | None], ...] = (
    # What holds whatever else is off: other ranks, another start, other inputs.
    before.ranks_disagree,
    before.weights_not_loaded,
    before.eval_mode,
    before.samples,
    # What is done to the gradient between backward and the update, seen as it happens.
    gradient.gradients_not_zeroed,
    gradient.grad_scaler,
    gradient.clipped_too_early,
    gradient.clipped_apart,
    gradient.overflow,
    gradient.frozen_parameter,
    # What explains the whole gradient by arithmetic.
    gradient.scaled,
    gradient.weighted_otherwise,
    # What changes the forward pass.
    gradient.batchnorm_statistics,
    gradient.randomness,
    gradient.precision,
    # The gradient is right and the update is not.
    update.parameters_not_updated,
    update.schedule,
    update.clipping,
    update.optimizer_state,
    update.buffers_only,
)
