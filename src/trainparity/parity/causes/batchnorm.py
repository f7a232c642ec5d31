"""Batch normalisation over another number of samples."""

from trainparity.parity.causes.finding import Finding, rule
from trainparity.parity.noise.margin import is_coarse
from trainparity.parity.recording.names import module_of
from trainparity.parity.recording.trace import Trace
from trainparity.parity.steps.comparable_rows import calls
from trainparity.parity.steps.difference import Difference
from trainparity.parity.steps.hidden_passes import further_on
from trainparity.parity.steps.other_arithmetic import has_weights


@rule(
    "batchnorm-statistics",
    "forward",
    proof="the first activation beyond the floor, or in a coarse format the first gradient or "
    "running statistic, is a BatchNorm's, and it saw batches of another size; or its running statistics are off, and a "
    "forward pass calls it more often in one run",
    advice="use SyncBatchNorm over ranks (on GPUs), or GroupNorm, or compare runs with the same micro-batches",
)
def batchnorm_statistics(difference: Difference) -> Finding | None:
    """BatchNorm saw batches of another size, and its output is the first activation that is off."""
    rows = [rows_per_pass(trace, difference.row) for trace in difference.traces]
    norms = _that_normalise_over_batches(difference)
    first = difference.first_activation
    if norms and (found := _called_more_often(difference, norms)):
        return found
    if not norms or sizes(rows[0]) == sizes(rows[1]):
        return None
    if difference.stage != "gradient" and not _shows_in_statistics(difference, norms):
        return None
    inside, within = difference.chain.inside, _hidden_by_the_cut(difference, norms)
    named = within or _norm_of(difference, norms)
    if inside and first is not None and named is None and not _may_be_of_other_rows(difference, norms):
        return None
    if (first is None or not inside) and not within and not _shows_elsewhere(difference, norms):
        return None
    return Finding(
        (
            f"{named if inside and named else norms[0]} normalises over {sizes(rows[0])} samples at a time in "
            f"{difference.runs[0]}, over {sizes(rows[1])} in {difference.runs[1]}"
        ),
        {"modules": norms, "samples_of_each_pass": [str(rows[0]), str(rows[1])], "first_activation": first or ""},
    )


def _called_more_often(difference: Difference, norms: list[str]) -> Finding | None:
    """Find a BatchNorm that sees each batch in more parts in one run, as both views of a sample at once or in turns."""
    seen = [calls(trace.layout.activations) for trace in difference.traces]
    counts = {norm: [len(of_run.get(norm, ())) for of_run in seen] for norm in norms}
    odd = [norm for norm, (ours, theirs) in counts.items() if ours != theirs]
    odd = [norm for norm in odd if all(_is_called(trace, norm) for trace in difference.traces)]
    odd = [norm for norm in odd if not _see_as_much(difference, set.intersection(*(s.get(norm, set()) for s in seen)))]
    first = next((norm for norm in odd if _shows_elsewhere(difference, [norm])), None)
    if first is None or difference.stage != "gradient":
        return None
    ours, theirs = counts[first]
    how = f"{_times(ours)} in {difference.runs[0]}, and {_times(theirs)} in {difference.runs[1]}"
    if not ours or not theirs:  # calls with fewer rows than samples have no names
        how = f"over all rows of its samples in {difference.who(bool(ours))}, and not in {difference.who(not ours)}"
    return Finding(
        f"each forward pass calls {first} {how}: it normalises over other numbers of rows at a time",
        {"modules": odd, "calls_of_each_pass": [float(ours), float(theirs)]},
        advice="give it the same rows at a time in both runs, or use GroupNorm",
    )


def _see_as_much(difference: Difference, both: set[str]) -> bool:
    """Tell whether calls that both runs make see as many numbers: then one run makes further calls of its own."""
    numbers = [
        [trace.arrays["activation/numbers"][difference.row, trace.layout.activations.index(name)] for name in both]
        for trace in difference.traces
    ]
    return bool(both) and numbers[0] == numbers[1]


def _is_called(trace: Trace, norm: str) -> bool:
    """Tell whether running statistics of a BatchNorm move, or it has none, or nobody knows: of one step."""
    own = [place for place, name in enumerate(trace.layout.buffers) if name.rpartition(".")[0] == norm]
    digests = trace.arrays["buffer/digest"][:, own]
    return not own or len(digests) < 2 or bool((digests[1:] != digests[:-1]).any())


def _times(count: int) -> str:
    return {1: "once", 2: "twice"}.get(count, f"{count} times")


def _may_be_of_other_rows(difference: Difference, norms: list[str]) -> bool:
    """Tell whether what differs in front of the first norm may do so as other rows lie beside one another there.

    As where a model stacks two views of its samples: rows of a sample that are not next to one another, in another cut.
    """
    first, inside = difference.first_activation, difference.chain.inside
    norm = next((place for place, name in enumerate(inside) if module_of(name) in norms), 0)
    return first in inside[:norm] and _shows_elsewhere(difference, norms)


def _that_normalise_over_batches(difference: Difference) -> list[str]:
    """Return the BatchNorms but those that are frozen, by their class or as the reference does not train them.

    One without running statistics computes the same in evaluation.
    """
    layout, frozen = difference.left.layout, difference.at("evaluating")[0].tolist()
    modules = zip(layout.modules.items(), frozen, strict=True)
    trained = [(name, kind) for (name, kind), still in modules if not still or name not in layout.modal]
    return [name for name, kind in trained if "BatchNorm" in kind and "Frozen" not in kind]


def _norm_of(difference: Difference, norms: list[str]) -> str | None:
    """Return the BatchNorm whose output is the first that is off; in a coarse format the last one before that, too.

    What it returns adds up to about nothing over the samples, which rounding hides; so may what modules without weights
    make of that, as a ReLU.
    """
    first, inside = difference.first_activation, difference.chain.inside
    if first is None or module_of(first) in norms:
        return first
    if first not in inside or not is_coarse(difference.left.layout) or not _shows_elsewhere(difference, norms):
        return None
    before = map(module_of, reversed(inside[: inside.index(first)]))
    last = next((module for module in before if has_weights(difference, module) or module in norms), None)
    return last if last in norms else None


def _hidden_by_the_cut(difference: Difference, norms: list[str]) -> str | None:
    """Return the BatchNorm at or in front of the first module that makes something else, within the floor of twins.

    In a coarse format these, which move all weights, may be further apart. No module between is seen to agree.
    """
    if difference.first_activation is not None or not difference.passes_part:
        return None
    first, inside = next(iter(further_on(difference)), None), difference.chain.inside
    if first not in inside:
        return None
    place, order = inside.index(first), list(difference.left.layout.modules)
    around = [order.index(one) for one in map(module_of, inside[max(0, place - 1) : place + 1]) if one in order]
    between = order[min(around) : max(around) + 1] if around else []
    return next((name for name in between if name in norms), None)


def _shows_in_statistics(difference: Difference, norms: list[str]) -> bool:
    """Tell whether rounding hides it everywhere but in running statistics, which see each batch of another size."""
    if difference.stage != "buffer" or not is_coarse(difference.left.layout):
        return False
    statistics = {f"{norm}.{name}" for norm in norms for name in ("running_mean", "running_var")}
    return bool(statistics & set(difference.beyond["buffer"]))


def _shows_elsewhere(difference: Difference, norms: list[str]) -> bool:
    """Tell whether BatchNorm's buffers are off, or first its gradients where rounding hides what it returns."""
    off = list(difference.beyond["buffer"])
    if is_coarse(difference.left.layout):
        off.append(difference.first_tensor.removeprefix("gradient "))
    return any(name.rpartition(".")[0] in norms for name in off)


def rows_per_pass(trace: Trace, row: int) -> list[list[int]]:
    """Return how many samples one normalisation sees: by pass and rank, over all ranks for SyncBatchNorm."""
    rows = trace.arrays["rank/rows"][row]
    if any("SyncBatchNorm" in kind for kind in trace.layout.modules.values()):
        rows = rows.sum(0, keepdim=True)
    return sorted([value for value in rank if value] for rank in rows.tolist())


def sizes(rows: list[list[int]]) -> str:
    """Say of how many samples passes are, by pass and rank; zeros fill up."""
    found = sorted({value for rank in rows for value in rank if value})
    return " or ".join(map(str, found)) or "unknown"
