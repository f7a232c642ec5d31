"""Weights that the step starts from."""

from trainparity.parity.causes.finding import Evidence, Finding, rule, some
from trainparity.parity.causes.precision import stored_alike
from trainparity.parity.difference import Difference
from trainparity.parity.distance import ALL


@rule(
    "weights-not-loaded",
    "start",
    proof="the step starts from other weights, though the step before ended with equal ones; or a parameter is tied "
    "in one run only",
    advice="load the same checkpoint (or seed) into every parameter and tie the same ones before training",
)
def weights_not_loaded(difference: Difference) -> Finding | None:
    """The weights that the step starts from are other weights, though the step before ended with equal ones."""
    left, right = difference.left, difference.right
    # Another optimizer may have made its step before this one's begins.
    of_another = set(left.layout.unoptimised) ^ set(right.layout.unoptimised)
    moved = _moved_between_steps(difference)
    names = [n for n in difference.beyond["start"] if n != ALL and n not in of_another and n in moved]
    untied = {name: name in left.layout.tied for name in set(left.layout.tied) ^ set(right.layout.tied)}
    if not untied and (not names or stored_alike(difference)):
        return None
    row, steps = difference.row, left.layout.steps
    if row > 0 and not untied and steps[row] - steps[row - 1] > 1:
        return None  # they drifted apart in steps that were not traced
    total = len(left.layout.parameters)
    evidence: Evidence = {
        "parameters": names,
        "distance": difference.distance("start"),
        "of_all_parameters": len(names) / total,
    }
    if untied:
        evidence["tied_in_one_run_only"] = sorted(untied)
        what = f"{some(sorted(untied))} is tied in {difference.who(untied[min(untied)])} only"
    else:
        what = f"{some(names)} start from other values"
    when = "from the start" if row == 0 else f"from step {steps[row]} on, though step {steps[row - 1]} left them equal"
    return Finding(f"{len(names)} of {total} parameters differ {when}: {what}", evidence)


def _moved_between_steps(difference: Difference) -> set[str]:
    """Return the parameters that do not start from what the traced step before has left; at the first step all.

    Others are apart since that step, by what its floor excused.
    """
    row, names = difference.row, list(difference.left.layout.parameters)
    if row == 0:
        return set(names)
    kept = [
        (trace.arrays["start/sketch"][row] == trace.arrays["weight/sketch"][row - 1]).all(1)
        for trace in (difference.left, difference.right)
    ]
    return {name for name, same in zip(names, (kept[0] & kept[1]).tolist(), strict=True) if not same}
