"""Samples of other lengths: padded, or cut off."""

from trainparity.parity.recording.names import INPUT, depends_on_cut
from trainparity.parity.steps.difference import Difference
from trainparity.parity.steps.identities import identities, over_the_run, same_over_the_run, without

BY_CHANCE = 0.05
"""Probability below which what is seen of the steps of both runs is not so by chance."""


def _known_by(difference: Difference) -> str | None:
    """Name the input that samples are known by."""
    given = difference.left.layout.activations
    return next((name for name in given if name.startswith(INPUT) and not depends_on_cut(name)), None)


def of_other_length(difference: Difference) -> bool:
    """Tell whether as many samples have more numbers in one run: it pads, or cuts, each batch to another length.

    Contents tell that too, and other samples only where those that both runs have come in other steps.
    """
    counts, first = difference.numbers("num_samples"), _known_by(difference)
    if counts[0] != counts[1] or first is None:
        return False
    other = first in difference.of_other_size and not _end_with_zero(difference, first)
    if any(trace.layout.uneven for trace in difference.traces):
        other = (other or _several_passes(difference)) and not _comes_twice(difference)
    return other and not same_over_the_run(*difference.traces) and not _in_other_steps(difference)


def _several_passes(difference: Difference) -> bool:
    """Tell whether a run makes several passes of a step: each may be padded to a length of its own."""
    return any(int((trace.arrays["rank/rows"][difference.row] > 0).sum()) > 1 for trace in difference.traces)


def _comes_twice(difference: Difference) -> bool:
    """Tell whether samples come twice in one run of a step alone, which no padding makes of others."""
    seen = (identities(trace, difference.row) for trace in difference.traces)
    ours, theirs = (len(each) > len(set(each)) for each in seen)
    return ours != theirs


def _end_with_zero(difference: Difference, given: str) -> bool:
    """Tell whether samples are others that end with another number of zeros, which are tokens as any other.

    Of the same ones, padded or cut to another length, each that is known by something else would be longer.
    """
    ours, theirs = difference.numbers_of(given)
    return abs(ours - theirs) < len(without(*(identities(trace, difference.row) for trace in difference.traces)))


def _in_other_steps(difference: Difference) -> bool:
    """Tell whether most of the samples that both runs have come in other steps of one."""
    ours, theirs = over_the_run(*difference.traces)
    rows = range(min(len(trace.layout.steps) for trace in difference.traces))
    at_once = sum(len(set.intersection(*(set(identities(t, row)) for t in difference.traces))) for row in rows)
    return 2 * at_once < len(ours & theirs)


def is_cut_off(difference: Difference) -> bool:
    """Tell whether one run has fewer numbers in each step in which it has other samples, and as many where it has not.

    Others in their place would be longer in some steps.
    """
    if (first := _known_by(difference)) not in difference.right.layout.activations or first is None:
        return False
    fewer = []
    for row in range(min(len(trace.layout.steps) for trace in difference.traces)):
        (ours, left), (theirs, right) = ((identities(t, row), t.numbers(row)[first]) for t in difference.traces)
        if (ours == theirs) != (left == right):
            return False
        if left != right:
            fewer.append(right < left)
    return len(set(fewer)) == 1 and 2 * 0.5 ** len(fewer) <= BY_CHANCE
