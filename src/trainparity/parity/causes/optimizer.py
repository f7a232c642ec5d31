"""Another optimizer, other options or other state."""

import torch

from trainparity.parity.causes.finding import Finding, rule
from trainparity.parity.causes.rate import close
from trainparity.parity.difference import Difference

_SETTING = "setting/"


@rule(
    "optimizer-state",
    "update",
    proof="gradients and learning rate agree; another class, other options, or other moments or step counts before "
    "the update",
    advice="give both runs one optimizer with one set of options, and restore its state with the weights",
)
def optimizer_state(difference: Difference) -> Finding | None:
    """Another optimizer, other settings of it, or other moments and step counts before the update."""
    if difference.stage != "update":
        return None
    left, right = difference.left, difference.right
    if left.layout.optimizer != right.layout.optimizer:
        what = f"{left.layout.optimizer} against {right.layout.optimizer}"
        return Finding(what, {"optimizers": [left.layout.optimizer, right.layout.optimizer]})
    settings = sorted({k for trace in (left, right) for k in trace.arrays if k.startswith(_SETTING)})
    odd = [key for key in settings if _differs(difference, key)]
    if odd:
        names = [key.removeprefix(_SETTING) for key in odd]
        values = {n: [float(v.amax()) for v in difference.pair(k) or ()] for n, k in zip(names, odd, strict=True)}
        what = "; ".join(f"{name}: {' against '.join(f'{v:g}' for v in both)}" for name, both in values.items())
        return Finding(f"other options: {what}", {"options": names})
    norms, steps = difference.pair("state/norm"), difference.numbers("optimizer_step")
    if norms is None:
        return None
    total = [float(torch.linalg.vector_norm(norm)) for norm in norms]
    apart = abs(total[0] - total[1]) > max(1e-3, difference.tolerance) * max(total)
    if not apart and steps[0] == steps[1]:
        return None
    lost = " (one of them has none: lost on resume)" if min(total) == 0 < max(total) else ""
    return Finding(
        f"before step {difference.step} the optimizer's state differs{lost}",
        {"norm_of_the_state": total, "steps_counted": list(steps)},
    )


def _differs(difference: Difference, key: str) -> bool:
    values = difference.pair(key)
    return values is None or not close(*values)
