"""Modules in evaluation mode."""

from trainparity.parity.causes.finding import Finding, rule
from trainparity.parity.causes.parted_starts import starts_elsewhere
from trainparity.parity.causes.passes import see_other_samples
from trainparity.parity.recording.names import module_of
from trainparity.parity.steps.difference import Difference
from trainparity.parity.steps.hidden_passes import further_on
from trainparity.records.names import some
from trainparity.records.numbers import exact


def _modes_differ(difference: Difference) -> bool:
    """Tell whether a module that computes something else in evaluation is in another mode."""
    return bool(set(_odd(difference)) & set(difference.left.layout.modal))


def _odd(difference: Difference) -> list[str]:
    """Return the modules that are in evaluation mode in one run only."""
    modes, names = difference.pair("evaluating"), list(difference.left.layout.modules)
    if modes is None or list(difference.right.layout.modules) != names:
        return []
    return [names[index] for index in (modes[0] != modes[1]).nonzero().flatten().tolist()]


def moved_by_their_mode(difference: Difference) -> dict[str, str]:
    """Return modules that one run alone has in evaluation mode, and weights of theirs that this has moved.

    No optimizer holds these: adapters, as LoRA's, are added to them by `eval()`, and taken off again by `train()`.
    """
    odd, modes = _odd(difference), difference.pair("evaluating")
    if not odd or modes is None or not difference.goes_on:
        return {}
    right = bool(modes[1][list(difference.left.layout.modules).index(odd[0])])
    trace = difference.traces[right]
    moved = starts_elsewhere(trace, difference.row) & ~trace.arrays["held"].any(0)
    return {name.rpartition(".")[0]: name for name in difference.named(moved) if name.rpartition(".")[0] in odd}


def _one_alone_draws(difference: Difference) -> bool:
    """Tell whether the forward pass draws random numbers in one run only: a zeroed layer may yet hide what they do."""
    drew = difference.pair("rank/drew")
    return drew is not None and bool(drew[0].any()) != bool(drew[1].any())


def _differs_inside(difference: Difference) -> bool:
    """Tell whether a module makes something else, which a coarse format may hide in what the model returns."""
    hidden = difference.passes_part and bool(further_on(difference))
    return difference.first_activation is not None or hidden


@rule(
    "forward",
    "forward",
    proof="the first output that differs is a dropout's, which drops another part of what it is given",
    advice="give both runs the same rates of dropout",
)
def dropout_rate(difference: Difference) -> Finding | None:
    """A dropout of another rate, which drops more, or less, of its input by the same random numbers."""
    name = module_of(difference.first_activation or "")
    rates = [trace.layout.dropped.get(name, 0.0) for trace in difference.traces]
    if difference.stage != "gradient" or rates[0] == rates[1] or not all(rates):
        return None
    ours, theirs = (f"{exact(rate)} in {run}" for rate, run in zip(rates, difference.runs, strict=True))
    return Finding(f"{name} drops {ours} and {theirs} of what it is given", {"module": name, "rates": rates})


@rule(
    "eval-mode",
    "forward",
    proof="a module is in evaluation mode in one run only, and the forward pass differs",
    advice="call model.train() before every training step, also after validation",
    differs=_modes_differ,
)
def eval_mode(difference: Difference) -> Finding | None:
    """Modules that are in evaluation mode in one of the runs only."""
    modes, odd = difference.pair("evaluating"), _odd(difference)
    if modes is None or not odd or (difference.stage in ("update", None) and not _modes_differ(difference)):
        return None
    effective = set(odd) & {*difference.left.layout.modal, *moved_by_their_mode(difference)}
    agree = difference.chain.outputs_agree and not _differs_inside(difference) and not _one_alone_draws(difference)
    if not effective and (agree or see_other_samples(difference)):
        return None  # modules that compute the same in both modes, or others that were given something else
    names = list(difference.left.layout.modules)
    shown = [name for name in odd if name in effective] or odd
    run = difference.who(bool(modes[0][names.index(shown[0])]))
    return Finding(
        f"{some(shown)} {'is' if len(shown) == 1 else 'are'} in evaluation mode in {run} only",
        {"modules": odd, "evaluating": [float(mode.sum()) for mode in modes]},
    )
