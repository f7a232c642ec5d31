"""Other number formats."""

from trainparity.parity.causes.finding import Finding, rule
from trainparity.parity.difference import Difference
from trainparity.records.numbers import exact


@rule(
    "precision",
    "backward",
    proof="gradients overflow in one run only",
    advice="use bf16, or let the loss scale come down before the runs are compared",
)
def overflow(difference: Difference) -> Finding | None:
    """Gradients that are not finite in one run only."""
    finite = [bool(norms.isfinite().all()) for norms in difference.norms("gradient")]
    if finite[0] == finite[1]:
        return None
    scale = difference.numbers("scale/value")
    return Finding(
        (
            f"gradients overflowed at step {difference.step} in {difference.who(not finite[0])} only"
            + (", and the loss scaler skipped the step" if max(scale) else "")
        ),
        {"finite": [float(f) for f in finite], "loss_scale": list(scale)},
    )


def rounded_alike(difference: Difference) -> bool:
    """Tell whether formats differ, and gradients by no more than the coarser one rounds."""
    unit = max(trace.layout.unit_roundoff for trace in (difference.left, difference.right))
    return not difference.same_precision and difference.distance("gradient") <= 128 * unit


@rule(
    "precision",
    "forward",
    proof="the formats differ and the distance is what the coarser one rounds",
    advice="compare runs of one precision, and judge a change of precision by whole runs over seeds",
)
def other_format(difference: Difference) -> Finding | None:
    """The runs compute in other number formats, and are apart by no more than the coarser one rounds."""
    left, right = difference.left.layout, difference.right.layout
    if difference.stage != "gradient" or not rounded_alike(difference):
        return None
    distance = difference.distance("gradient")
    return Finding(
        f"{left.precision} against {right.precision}: apart by {exact(distance, 2)}, as that rounds",
        {"unit_roundoff": [left.unit_roundoff, right.unit_roundoff], "distance": distance},
    )
