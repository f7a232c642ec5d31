"""Weights that are zero: they hide from all that comes after what they are given, but not from their own gradient."""

from trainparity.parity.steps.step_pair import StepPair


def silent(step: StepPair) -> list[set[str]]:
    """Return what returns nothing but zeros, by run."""
    found = []
    for trace in step.traces:
        returned = trace.arrays["activation/sketch"][step.row].any(1).tolist()
        found.append({name for name, seen in zip(trace.layout.activations, returned, strict=True) if not seen})
    return found


def without_effect(step: StepPair) -> set[str]:
    """Return the parameters that are zero before the step, of modules that return zeros; or that are no module's own.

    Those are matrices beside another module in one, as an adapter's, and gates. Another module's bias hides nothing,
    nor what the loss takes by itself.
    """
    found = set(step.left.layout.parameters) - of_the_loss(step)
    for trace, quiet in zip(step.traces, silent(step), strict=True):
        nonzero = trace.arrays["start/sketch"][step.row].any(1).tolist()
        weights = [name for name, filled in zip(trace.layout.parameters, nonzero, strict=True) if not filled]
        found &= {name for name in weights if not name.endswith((".weight", ".bias")) or _owner(name) in quiet}
    return {name for name in found if "bias" not in name or f"{_owner(name)}.weight" in found}


def of_the_loss(step: StepPair) -> set[str]:
    """Return the parameters that the loss of both runs takes by itself, not through what the model returns."""
    return set.intersection(*(set(trace.layout.loss_reads) for trace in step.traces))


def _owner(parameter: str) -> str:
    return parameter.rpartition(".")[0]
