"""The link of an optimizer step's chain on which two runs part, by what was recorded, where no cause is proved."""

from trainparity.parity.causes.passes import adds_up, own_gradients_agree
from trainparity.parity.steps.difference import Difference
from trainparity.records.verdict import Link


def place(difference: Difference) -> tuple[Link | None, list[str]]:
    """Return the first link that is off, and what agrees before it; None where too little was recorded to tell."""
    agrees: list[str] = []
    if difference.beyond["start"]:
        return "start", agrees
    agrees.append("the weights before the step")
    if difference.stage != "gradient":
        agrees.append("the gradient")
        return ("update" if difference.stage == "update" else "buffers"), agrees
    counts, hashes = difference.pair("num_samples"), difference.pair("samples")
    if counts is None or hashes is None or not all(counts):
        return None, agrees
    if int(hashes[0]) != int(hashes[1]) or (difference.chain.other_inputs and not difference.chain.outputs_agree):
        return "inputs", agrees
    agrees.append("the samples")
    if difference.chain.outputs_agree is None:
        return None, agrees
    if not difference.chain.outputs_agree:
        return "forward", agrees
    agrees.append("what the model returns")
    return _after_the_outputs(difference, agrees)


def _after_the_outputs(difference: Difference, agrees: list[str]) -> tuple[Link | None, list[str]]:
    chain, own = difference.chain, own_gradients_agree(difference)
    if not chain.judged:
        return None, agrees
    if set(chain.judged) & set(chain.backward):
        return "loss", agrees
    agrees.append("the gradient of the loss by that")
    ranks, passes = difference.right.layout.world_size, difference.pair("rank/backwards")
    single = ranks == 1 and passes is not None and all(int(count.amax()) <= 1 for count in passes)
    as_made = single and all(adds_up(trace, difference.row) for trace in difference.traces)
    if chain.backward or own is False or as_made:  # what a single pass adds is the gradient, which is off
        return "backward", agrees
    if own is None:
        return None, agrees
    agrees.append("what each backward pass adds")
    return ("reduction" if ranks > 1 else "accumulation"), agrees
