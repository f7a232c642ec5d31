"""Gradients that are added up over the wrong micro-batches."""

from trainparity.parity.causes.finding import Evidence, Finding, listed, rule
from trainparity.parity.difference import Difference, fit
from trainparity.parity.recording.trace import Trace


@rule(
    "gradients-not-zeroed",
    "accumulation",
    proof="a gradient was held before the step's first backward; or none before a later one, and the applied "
    "gradient is the last micro-batch's alone",
    advice="call optimizer.zero_grad() once in every optimizer step, before its first backward",
)
def gradients_not_zeroed(difference: Difference) -> Finding | None:
    """Gradients held before the first backward pass of a step, or none held before a later one."""
    held = difference.pair("rank/held")
    if difference.stage != "gradient" or held is None:
        return None
    left, right = held
    if not (left.numel() and right.numel()):
        return None
    evidence: Evidence = {"norm_held_before_each_pass": [listed(left[0].tolist()), listed(right[0].tolist())]}
    before = [float(side[:, 0].amax()) for side in held]
    if (before[0] > 0) != (before[1] > 0):
        return Finding(
            f"step {difference.step} begins with a gradient of norm {max(before):.3g} left from the step before",
            evidence,
        )
    early = [_zeroed_between(trace, difference.row) for trace in (difference.left, difference.right)]
    if early[0] != early[1]:
        return Finding(
            f"at step {difference.step} the gradients of earlier micro-batches are thrown away before the last one",
            evidence,
            advice="call optimizer.zero_grad() after the optimizer's step, not between micro-batches",
        )
    return None


def _zeroed_between(trace: Trace, row: int) -> bool:
    """Tell whether the gradient applied is the last micro-batch's alone, though there were several."""
    count = int(trace.arrays["rank/backwards"][row].amax())
    if count < 2 or not (trace.arrays["rank/held"][row][:, 1:count] == 0).any():
        return False
    last = trace.arrays["rank/micro"][row][:, count - 1].mean(0)
    return fit(last, trace.arrays["rank/total"][row][0])[1] < 1e-3
