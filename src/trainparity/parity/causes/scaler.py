"""The loss scale left in the gradients."""

from trainparity.parity.causes.finding import Evidence, Finding, rule
from trainparity.parity.difference import Difference
from trainparity.records.numbers import exact


def _scale_differs(difference: Difference) -> bool:
    """Tell whether gradients carry a loss scale where they must not, in one run only."""
    carried = [difference.numbers(f"scale/{when}") for when in ("clipped", "left")]
    return any(left != right for left, right in carried) and max(difference.numbers("scale/value")) != 1


@rule(
    "grad-scaler",
    "clipping",
    proof="gradients carried the loss scale when they were clipped or applied",
    advice="call scaler.unscale_(optimizer) before clipping",
    differs=_scale_differs,
)
def grad_scaler(difference: Difference) -> Finding | None:
    """The loss scale was still in the gradients when they were clipped, or when they were applied."""
    clipped, left_in = difference.numbers("scale/clipped"), difference.numbers("scale/left")
    scale = max(difference.numbers("scale/value"))
    if clipped[0] == clipped[1] and left_in[0] == left_in[1]:
        return None
    evidence: Evidence = {"loss_scale": scale, "gradient_ratio": difference.scale[0]}
    if clipped[0] != clipped[1]:
        return Finding(f"gradients were clipped while they carried the loss scale {exact(scale)}", evidence)
    return Finding(
        f"the update used gradients that carried the loss scale {exact(scale)}",
        evidence,
        advice="call scaler.step(optimizer), which unscales them, instead of optimizer.step()",
    )
