"""Another optimizer, other options or other state."""

import torch

from trainparity.parity.causes import facts
from trainparity.parity.causes.finding import Finding, rule
from trainparity.parity.difference import Difference


def _options_differ(difference: Difference) -> bool:
    return bool(facts.options(difference))


@rule(
    "optimizer-state",
    "update",
    proof="options of the optimizer other than the learning rate differ",
    advice="give both runs one optimizer with one set of options",
    differs=_options_differ,
)
def optimizer_options(difference: Difference) -> Finding | None:
    """Other options, such as weight decay or betas, of one class of optimizer or two."""
    names, classes = facts.options(difference), _classes(difference)
    if not names or not difference.may_be_update:
        return None
    used = facts.held(difference)
    values = {name: [float(v[used].amax()) for v in difference.pair(facts.SETTING + name) or ()] for name in names}
    what = "; ".join(f"{name}: {' against '.join(f'{v:g}' for v in both)}" for name, both in values.items())
    if classes[0] != classes[1]:
        what = f"{classes[0]} against {classes[1]}; {what}"
    return Finding(f"other options: {what}", {"options": names, "optimizers": classes})


@rule(
    "optimizer-state",
    "update",
    proof="gradients and learning rate agree; another class, or other moments or step counts before the update",
    advice="give both runs one optimizer with one set of options, and restore its state with the weights",
)
def optimizer_state(difference: Difference) -> Finding | None:
    """Another optimizer, or other moments and step counts before the update."""
    if difference.stage != "update":
        return None
    classes = _classes(difference)
    if classes[0] != classes[1]:
        return Finding(f"{classes[0]} against {classes[1]}", {"optimizers": classes})
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


def _classes(difference: Difference) -> list[str]:
    return [trace.layout.optimizer for trace in (difference.left, difference.right)]
