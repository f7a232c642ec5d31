"""The loss scale left in the gradients."""

import math

from trainparity.parity.causes.finding import Evidence, Finding, rule
from trainparity.parity.causes.passes import count_of, own_gradients_agree
from trainparity.parity.steps.after_backward import kept_after_backward
from trainparity.parity.steps.difference import Difference
from trainparity.records.numbers import exact


def _scale_differs(difference: Difference) -> bool:
    """Tell whether gradients carry a loss scale where they must not, in one run only."""
    carried = [difference.numbers(f"scale/{when}") for when in ("clipped", "left")]
    return any(left != right for left, right in carried) and _is_longer(difference)


def _is_longer(difference: Difference) -> bool:
    """Tell whether one gradient is more times the other than halfway to the loss scale, in orders of magnitude.

    Else the scale is that of another model's loss, as where a generator's is not scaled.
    """
    scale, factor = max(difference.numbers("scale/value")), abs(difference.scale[0])
    known = math.isfinite(factor) and factor > 0  # else it overflowed
    return scale != 1 and (not known or 2 * abs(math.log(factor)) > abs(math.log(scale)))


@rule(
    "grad-scaler",
    "clipping",
    proof="gradients carried the loss scale when they were clipped or applied; or in both runs when they were clipped, "
    "by scales of which one is the other times the same number as the gradient",
    advice="call scaler.unscale_(optimizer) before clipping",
    differs=_scale_differs,
)
def grad_scaler(difference: Difference) -> Finding | None:
    """The loss scale was still in the gradients when they were clipped, or when they were applied."""
    clipped = difference.numbers("scale/clipped")
    scale = max(difference.numbers("scale/value"))
    if not _scale_differs(difference):
        return _clipped_with_other_scales(difference)
    evidence: Evidence = {"loss_scale": scale, "gradient_ratio": difference.scale[0]}
    if clipped[0] != clipped[1]:
        return Finding(f"gradients were clipped while they carried the loss scale {exact(scale)}", evidence)
    return Finding(
        f"the update used gradients that carried the loss scale {exact(scale)}",
        evidence,
        advice="call scaler.step(optimizer), which unscales them, instead of optimizer.step()",
    )


def _clipped_with_other_scales(difference: Difference) -> Finding | None:
    """Tell of gradients that both runs clip while they carry a loss scale, each another one."""
    scales, (factor, rest) = difference.numbers("scale/value"), difference.scale
    if not all(difference.numbers("scale/clipped")) or not max(difference.numbers("clip/cuts")) or not all(scales):
        return None
    if scales[0] == scales[1] or rest > difference.tolerance or abs(factor * scales[0] / scales[1] - 1) > _AS_CLIPPED:
        return None
    of_each = (f"{exact(scale)} in {run}" for scale, run in zip(scales, difference.runs, strict=True))
    return Finding(
        f"gradients were clipped while they carried the loss scale, {' and '.join(of_each)}: the limit leaves as many "
        "times another gradient",
        {"loss_scales": [*scales], "gradient_ratio": factor},
    )


@rule(
    "grad-scaler",
    "clipping",
    proof="backward makes equal gradients, and one run takes the loss scale out of them once more",
    advice="take the loss scale out once: scaler.step(optimizer) does so, unless scaler.unscale_(optimizer) has",
)
def unscaled_again(difference: Difference) -> Finding | None:
    """The loop divides gradients by the loss scale that the scaler takes out of them as well."""
    scales = difference.numbers("scale/value")
    scale = max(scales)
    kept = [kept_after_backward(trace, difference.row) for trace in difference.traces]
    if difference.stage != "gradient" or scale <= 1 or not all(kept) or own_gradients_agree(difference) is not True:
        return None
    if count_of(difference, scale):  # another division by that, maybe
        return None
    rest = [part * (own or 1.0) for part, own in zip(kept, scales, strict=True)]  # 1 where a scaler takes its scale out
    less = rest[0] / rest[1]
    if min(abs(less / scale - 1), abs(less * scale - 1)) > _AS_SCALED:
        return None
    return Finding(
        f"backward makes equal gradients, and in {difference.who(less < 1)} they are divided by the loss scale "
        f"{exact(scale)} once more",
        {"loss_scale": scale, "kept": kept},
    )


_AS_CLIPPED = 0.01
"""Part by which a gradient that a limit left may be off the ratio of the scales, for rounding."""

_AS_SCALED = 1e-3
"""Part by which what is kept of a gradient may be off the loss scale."""
