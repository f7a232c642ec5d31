"""The same samples with other values, or other inputs beside them."""

import torch

from trainparity.parity.causes.finding import Finding, rule
from trainparity.parity.causes.loss import tolerance_of
from trainparity.parity.causes.passes import same_cut
from trainparity.parity.causes.precision import rounded_alike
from trainparity.parity.causes.samples import at_their_places
from trainparity.parity.noise.margin import is_coarse
from trainparity.parity.recording.names import OUTPUT, made
from trainparity.parity.steps.difference import Difference
from trainparity.parity.steps.identities import identities, over_the_run
from trainparity.records.numbers import counted


@rule(
    "samples",
    "inputs",
    proof="what another model makes for this one has other values",
    advice="look at the model that makes these samples",
)
def made_otherwise(difference: Difference) -> Finding | None:
    """The model is given what another one makes, and that differs though its own samples are equal."""
    if not _other_input(difference) or not max(difference.numbers("made_elsewhere")):
        return None
    return Finding(
        f"another model hands other values to this one in {difference.runs[1]} than in {difference.runs[0]}",
        {"made_by_another_model": True},
    )


def _other_input(difference: Difference) -> bool:
    """Tell whether an input has other values though the samples, known by the first one's contents, are equal."""
    hashes = difference.pair("samples")
    by_content = all(t.layout.settings.get("samples") != "identity" for t in difference.traces)
    if difference.stage != "gradient" or difference.beyond["start"] or not by_content or hashes is None:
        return False
    chain = difference.chain
    inside = chain.touched or made(chain.forward)
    # A layer that is still zero hides it from the outputs, and not from the gradients of what lies before the layer.
    same_loss = bool(chain.judged) and not set(chain.judged) & set(chain.backward)
    other_inputs = set(chain.other_inputs) - difference.padded_otherwise
    known = chain.outputs_agree is not None or same_cut(
        difference
    )  # else an input may count within its pass, as graphs
    differ = not chain.outputs_agree and (known or difference.scale[1] > tolerance_of(difference))
    reached = differ or bool(inside and (same_loss or is_coarse(difference.left.layout)))
    return bool(other_inputs) and reached and torch.equal(*hashes)


@rule(
    "inputs",
    "inputs",
    proof="the first tensor that the model is given has the same values for every sample, and another one has others",
    advice="compare the model's other inputs: masks, positions, time steps, conditions",
)
def other_inputs_beside(difference: Difference) -> Finding | None:
    """An input beside the one that samples are known by has other values."""
    if not _other_input(difference) or max(difference.numbers("made_elsewhere")):
        return None
    chain = difference.chain
    same = f"{difference.runs[1]} gives the model the same samples as {difference.runs[0]}"
    if set(chain.other_inputs) == set(chain.given_to_one):
        own = set(chain.given_to_one) <= set(difference.left.layout.activations)
        who = difference.who(own)
        what = f"{same}; a further input, as a state that is carried on, or another view, is given in {who} only"
    else:
        what = f"{same}, with other values in a further input"
    return Finding(what, {"inputs": chain.other_inputs})


@rule(
    "inputs",
    "inputs",
    proof="as many samples, known by their contents, none of which is common to both runs, or few and those in the "
    "same steps: other values, or other data",
    advice="prepare the data in one way (normalisation, resizing, length, number format); give `samples=` where "
    "samples are augmented",
)
def other_values(difference: Difference) -> Finding | None:
    """Samples have other contents."""
    return _other_contents(difference) if difference.stage in ("gradient", "buffer") else None


@rule(
    "inputs",
    "inputs",
    proof="as many samples, known by their contents, of which none is common to both runs, or few, in a coarse format "
    "that hides in gradients what an optimizer then makes other updates of",
    advice="prepare the data in one way (normalisation, resizing, mixing); give `samples=` where samples are augmented",
)
def other_values_before_the_update(difference: Difference) -> Finding | None:
    """Samples have other contents, and no gradient shows it as clearly as the update that is made of it."""
    hidden = difference.stage == "update" and is_coarse(difference.left.layout)
    return _other_contents(difference) if hidden else None


def _other_contents(difference: Difference) -> Finding | None:
    counts, (ours, theirs) = difference.pair("num_samples"), over_the_run(*difference.traces)
    if not difference.floor.same_samples:
        ours = ours & difference.floor.kept_samples
    if counts is None or not all(counts) or not torch.equal(*counts):
        return None
    by_content = all(t.layout.settings.get("samples") != "identity" for t in difference.traces)
    common, hashes = len(ours & theirs), difference.pair("samples")
    if _known_otherwise(difference) or hashes is None or torch.equal(*hashes) or common == len(ours):
        return None
    if rounded_alike(difference):
        return None  # FSDP2 hands inputs over in the format that it computes in
    if not by_content or not ours or (common and not at_their_places(difference)):
        return None
    return Finding(
        f"{common or 'none'} of the {len(ours)} samples that {difference.runs[0]} is given reach {difference.runs[1]} "
        "with the same values",
        {"samples": [float(count) for count in counts], "common": common},
    )


@rule(
    "inputs",
    "inputs",
    proof="as many samples, of which those that come from outside have the same values, and those that a loop makes of "
    "them have others",
    advice="look at what the loop makes for the model, such as points between real samples and made ones",
)
def made_by_the_loop(difference: Difference) -> Finding | None:
    """Samples that a loop makes, which twins make otherwise too, beside equal ones from outside."""
    hashes, counts = difference.pair("samples"), difference.pair("num_samples")
    if difference.stage != "gradient" or hashes is None or counts is None or not all(counts):
        return None
    kept = difference.floor.kept_samples
    ours, theirs = (set(identities(trace, difference.row)) & kept for trace in difference.traces)
    if torch.equal(*hashes) or not torch.equal(*counts) or not ours or ours != theirs:
        return None
    made = int(counts[0]) - len(ours)
    return Finding(
        f"{counted(made, 'sample')} that the loop makes {'has' if made == 1 else 'have'} other values in "
        f"{difference.runs[1]} than in {difference.runs[0]}; "
        f"the {len(ours)} that come from outside are the same",
        {"made_by_another_model": True, "samples": [float(count) for count in counts], "made": made},
    )


def _known_otherwise(difference: Difference) -> bool:
    """Tell whether the runs' samples are known by other tensors: one calls other parts, or has made features before."""
    outputs = [trace.layout.outputs for trace in difference.traces]
    aside = [bool(count) for count in difference.numbers("aside")]
    of_parts = not all(name.startswith(OUTPUT) for name in outputs[0])  # else the model is given the data itself
    return outputs[0] != outputs[1] or (of_parts and aside[0] != aside[1])
