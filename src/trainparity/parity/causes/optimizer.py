"""Another optimizer, or other options."""

import torch

from trainparity.parity.causes import facts
from trainparity.parity.causes.finding import Finding, rule
from trainparity.parity.steps.difference import Difference
from trainparity.records.names import some
from trainparity.records.numbers import exact


def _options_differ(difference: Difference) -> bool:
    return bool(facts.options(difference))


def _held_otherwise(difference: Difference) -> bool:
    return bool(facts.of_another_class(difference))


@rule(
    "optimizer-state",
    "update",
    proof="of several optimizers that step together one of another class holds a parameter",
    advice="give each parameter to an optimizer of one class in both runs, as matrices to Muon and all else to Adam",
    differs=_held_otherwise,
)
def held_by_another(difference: Difference) -> Finding | None:
    """Parameters that were moved from one optimizer to another."""
    if not (names := facts.of_another_class(difference)) or not difference.may_be_update:
        return None
    left, right = (trace.layout.optimizers[names[0]] for trace in difference.traces)
    return Finding(
        f"{some(names)}: updated by {left} in {difference.runs[0]} and by {right} in {difference.runs[1]}",
        {"parameters": names},
    )


@rule(
    "optimizer-state",
    "update",
    proof="options of the optimizer other than the learning rate differ",
    advice="give both runs one optimizer with one set of options",
    differs=_options_differ,
)
def optimizer_options(difference: Difference) -> Finding | None:
    """Other options, such as weight decay or betas, of one class of optimizer or two."""
    names, classes = facts.options(difference), facts.classes(difference)
    again = all(difference.numbers("closure/again"))  # then the gradient depends on the optimizer's options
    if not names or not (difference.may_be_update or again):
        return None
    what = "; ".join(_against(difference, name) for name in names)
    if classes[0] != classes[1]:
        what = f"{classes[0]} against {classes[1]}; {what}"
    return Finding(f"other options: {what}", {"options": names, "optimizers": classes})


def _against(difference: Difference, name: str) -> str:
    """Write an option's value in both runs, of the parameter where they are furthest apart."""
    if name in facts.choices(difference):
        left, right = (trace.layout.choices[name] for trace in difference.traces)
        return f"{name}: {left} against {right}"
    held = facts.held(difference)
    values = torch.stack(difference.pair(facts.SETTING + name) or ())[:, held]
    used = [key for key, found in zip(difference.left.layout.parameters, held, strict=True) if found]
    furthest = int((values[0] - values[1]).abs().argmax())
    where = f" of {used[furthest]}" if (values != values[:, :1]).any() else ""
    return f"{name}{where}: {exact(float(values[0][furthest]))} against {exact(float(values[1][furthest]))}"
