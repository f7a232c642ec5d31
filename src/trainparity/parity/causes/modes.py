"""Modules in evaluation mode."""

import torch

from trainparity.parity.causes.finding import Finding, rule, some
from trainparity.parity.difference import Difference


@rule(
    "eval-mode",
    "forward",
    proof="a module is in evaluation mode in one run only, and the forward pass differs",
    advice="call model.train() before every training step, also after validation",
)
def eval_mode(difference: Difference) -> Finding | None:
    """Modules that are in evaluation mode in one of the runs only."""
    modes = difference.pair("evaluating")
    if difference.stage == "update" or modes is None or torch.equal(*modes):
        return None
    names = list(difference.left.layout.modules)
    if list(difference.right.layout.modules) != names:
        return None
    odd = [names[index] for index in (modes[0] != modes[1]).nonzero().flatten().tolist()]
    return Finding(
        f"{some(odd)} is in evaluation mode in one run only",
        {"modules": odd, "evaluating": [float(mode.sum()) for mode in modes]},
    )
