"""Which activations of two runs can be compared at a step: those whose sums do not depend on how samples passed."""

from collections.abc import Sequence
from dataclasses import replace

import torch

from trainparity.parity.noise.margin import is_coarse
from trainparity.parity.recording.names import INPUT, OUTPUT, depends_on_cut, module_of, of_whole
from trainparity.parity.steps.sketch_pairs import Pairs
from trainparity.parity.steps.step_pair import StepPair


def comparable(step: StepPair, outputs: Sequence[str]) -> list[str]:
    """Return their names in the order of the forward pass; `outputs` are those that the loss is computed from."""
    names = _called_alike(step.left.layout.activations, step.right.layout.activations)
    left_out = _seen_in_no_run(step) | called_otherwise(step)
    names = [name for name in names if name not in left_out]
    if passed_alike(step):
        return names
    numbering = set.intersection(*(set(trace.layout.numbering) for trace in step.traces))
    by_pass = _of_no_samples(step) | numbering | _by_chance(step, names)
    names = [name for name in names if not depends_on_cut(name) and name not in by_pass]
    off_before = _off_before(step, names)
    return _of_samples(step, [name for name in names if name not in off_before], outputs)


def called_otherwise(step: StepPair) -> set[str]:
    """Return what parts show that the loop calls more often in one run, as a head over chunks of the body's output."""
    ours, theirs = (trace.layout.calls for trace in step.traces)
    return {name for name in ours.keys() & theirs.keys() if ours[name] != theirs[name]}


def _seen_in_no_run(step: StepPair) -> set[str]:
    """Return what had rows of samples in other steps alone, as where a sequence is as long as the batch is large."""
    left, right = (trace.numbers(step.row) for trace in step.traces)
    return {name for name, count in left.items() if not (count or right.get(name) or depends_on_cut(name))}


def _off_before(step: StepPair, names: list[str]) -> set[str]:
    """Return what is apart in the step before, too, where the runs agreed: its rows are no samples.

    So it is of crops of images that a model handles one after the other, all samples of each. In a coarse format runs
    may part there, as far as the floor of gradients hides.
    """
    if not step.row or is_coarse(step.left.layout):
        return set()
    before = replace(step, row=step.row - 1)
    if passed_alike(before):
        return set()
    return set(Pairs(before, "activation", names).beyond(names, 1.0, step.margin))


def passed_alike(step: StepPair) -> bool:
    """Tell whether both runs hand the same places of each pass to the same samples: else sums may depend on that."""
    pairs = step.pair("rank/rows"), step.pair("rank/samples")
    return all(pair is not None and torch.equal(*pair) for pair in pairs)


def _of_samples(step: StepPair, names: list[str], outputs: Sequence[str]) -> list[str]:
    """Return names without those inside of the model whose rows are shown to be no samples, as of a packed sequence.

    In another order, or cut, of the samples their sums have nothing in common, though what the model returns agrees.
    """
    off = set(Pairs(step, "activation", names).beyond(names, 1.0, step.margin))
    if not outputs or off & set(outputs):
        return names
    return [name for name in names if name not in off or name.startswith(INPUT)]


def _of_no_samples(step: StepPair) -> set[str]:
    """Return what has as many numbers in each pass, of however many samples, as the embeddings of positions [T, C].

    Where a pass has a divisor of T as samples these look like rows of its samples; their sums depend on the cut.
    """
    left, right = (trace.numbers(step.row) for trace in step.traces)
    ours, theirs = (int((rows > 0).sum()) for rows in step.at("rank/rows"))
    if ours == theirs:
        return set()
    return {name for name, count in left.items() if count and count * theirs == right.get(name, 0) * ours}


def _by_chance(step: StepPair, names: Sequence[str]) -> set[str]:
    """Return inputs that have a row for each sample in some passes alone, as a list of the words of all samples."""
    seen = {name for trace in step.traces for name in trace.layout.activations}
    return {name for name in names if name.startswith(INPUT) and of_whole(name) in seen}


def _called_alike(left: Sequence[str], right: Sequence[str]) -> list[str]:
    """Return what both runs have seen of modules that both call as often, in the order of the first.

    A module that one run calls once and the other several times, as an output layer over chunks of a sequence, returns
    something else each time; what the model returns is then another thing too where it is another number of tensors.
    """
    ours, theirs = (calls(names) for names in (left, right))
    odd = {module for module in ours.keys() & theirs.keys() if ours[module] != theirs[module]}
    if odd == {OUTPUT}:
        odd = set()  # one more tensor, beside the same ones
    return [name for name in left if name in right and _module(name) not in odd]


def calls(names: Sequence[str]) -> dict[str, set[str]]:
    """Return what modules show of their calls in a forward pass, by module; what the model returns is one."""
    found: dict[str, set[str]] = {}
    for name in names:
        if not name.startswith(INPUT):
            found.setdefault(_module(name), set()).add(name)
    return found


def _module(name: str) -> str:
    return OUTPUT if name.startswith(OUTPUT) else module_of(name)
