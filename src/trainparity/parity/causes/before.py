"""Causes that lie before the arithmetic: ranks that differ, other weights, other samples, evaluation mode."""

from collections import Counter

import torch
from torch import Tensor

from trainparity.parity.causes.finding import Evidence, Finding, some
from trainparity.parity.difference import Difference
from trainparity.parity.distance import ALL
from trainparity.parity.recording.trace import Trace


def ranks_disagree(difference: Difference) -> Finding | None:
    """Each rank's hash of its gradients (after reduction) and weights: missing or partial all-reduce."""
    for side, trace in (("the reference's", difference.left), ("the other run's", difference.right)):
        row = disagreement(trace)
        if row is None or row > difference.row:
            continue
        gradients = trace.arrays["rank/gradient"][row]
        evidence: Evidence = {
            "run": side.removesuffix("'s"),
            "step": trace.layout.steps[row],
            "gradients_agree": bool((gradients == gradients[0]).all()),
            "backward_passes_by_rank": trace.arrays["rank/backwards"][row].double().tolist(),
        }
        norms = trace.arrays["rank/clip_norm"][row]
        if evidence["gradients_agree"] and not torch.allclose(norms, norms[0].expand_as(norms), equal_nan=True):
            return Finding(
                "clipping",
                f"{side} ranks hold equal gradients but clip them by different norms",
                "clip by the norm of the whole gradient, the same on every rank",
                evidence | {"norms_by_rank": norms.tolist()},
            )
        missing = trace.arrays["rank/missing"][row]
        partial = (missing.any(0) & ~missing.all(0)).nonzero().flatten().tolist()
        if partial:
            names = list(trace.layout.parameters)
            evidence["on_some_ranks_only"] = [names[index] for index in partial]
            what = f"{some([names[index] for index in partial])} got a gradient on some ranks only"
        elif evidence["gradients_agree"]:
            what = "gradients agree, weights do not: the ranks started or stepped apart"
        else:
            what = "gradients are not all-reduced, or only some of them"
        return Finding(
            "ranks-disagree",
            f"{side} ranks hold different parameters after step {trace.layout.steps[row]}: {what}",
            "call the wrapper that averages gradients (not the module inside), and let the last micro-batch's backward "
            "run outside no_sync",
            evidence,
        )
    return None


def disagreement(trace: Trace) -> int | None:
    """Return the first traced row after which a run's ranks did not hold the same parameters."""
    digests = trace.arrays["rank/weight"]
    bad = (digests != digests[:, :1]).any(1).nonzero()
    return int(bad[0]) if len(bad) else None


def weights_not_loaded(difference: Difference) -> Finding | None:
    """The weights that the step starts from are other weights, though the step before ended with equal ones."""
    left, right = difference.left, difference.right
    names = [name for name in difference.beyond["start"] if name != ALL]
    untied = {name: name in left.layout.tied for name in set(left.layout.tied) ^ set(right.layout.tied)}
    if not names and not untied:
        return None
    row, steps = difference.row, left.layout.steps
    if row > 0 and not untied and steps[row] - steps[row - 1] > 1:
        return None  # they drifted apart in steps that were not traced
    total = len(left.layout.parameters)
    evidence: Evidence = {
        "parameters": names,
        "distance": difference.distance("start"),
        "of_all_parameters": len(names) / total,
    }
    if untied:
        evidence["tied_in_one_run_only"] = sorted(untied)
        what = f"{some(sorted(untied))} is tied in one run only"
    else:
        what = f"{some(names)} start from other values"
    when = "from the start" if row == 0 else f"from step {steps[row]} on, though step {steps[row - 1]} left them equal"
    return Finding(
        "weights-not-loaded",
        f"{len(names)} of {total} parameters differ {when}: {what}",
        "load the same checkpoint (or seed) into every parameter and tie the same ones before training",
        evidence,
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
        "eval-mode",
        f"{some(odd)} is in evaluation mode in one run only",
        "call model.train() before every training step, also after validation",
        {"modules": odd, "evaluating": [float(mode.sum()) for mode in modes]},
    )


def samples(difference: Difference) -> Finding | None:
    """Other samples, more or fewer of them, or some of them twice."""
    hashes, counts = difference.pair("samples"), difference.pair("num_samples")
    if difference.stage != "gradient" or hashes is None or counts is None:
        return None
    if not all(counts) or torch.equal(*hashes):
        return None
    if not _identified(difference):
        return None
    ours, theirs = (_identities(trace, difference.row) for trace in (difference.left, difference.right))
    missing, extra = _without(ours, theirs), _without(theirs, ours)
    twice = len(theirs) - len(set(theirs))
    evidence: Evidence = {
        "samples": [float(count) for count in counts],
        "missing": len(missing),
        "extra": len(extra),
        "duplicates": twice,
        "identified_by": str(difference.right.layout.settings.get("samples", "content")),
    }
    if _same_over_the_run(difference):
        what, advice = "the same samples come in another order over the run", "give both runs one seed, and set_epoch"
    elif twice and not len(ours) - len(set(ours)):
        what, advice = (
            f"{twice} samples come twice",
            "stop the sampler from padding uneven shards with repeated samples",
        )
    elif not extra:
        what, advice = f"{len(missing)} samples are left out", "keep the last batch (drop_last) and every rank's share"
    else:
        what, advice = f"{len(missing)} samples are replaced by others", "shard each global batch, seed the sampler"
    return Finding("samples", f"at step {difference.step} {what}", advice, evidence)


def _identified(difference: Difference) -> bool:
    """Tell whether samples that differ are other samples: known by contents alone, they may be the same, augmented."""
    traces = difference.left, difference.right
    if all(trace.layout.settings.get("samples") == "identity" for trace in traces):
        return True
    ours, theirs = ({int(i) for i in trace.arrays["sample_ids"].flatten().tolist() if i} for trace in traces)
    return bool(ours & theirs)


def _identities(trace: Trace, row: int) -> list[int]:
    ids: Tensor = trace.arrays["sample_ids"][row]
    return [int(value) for value in ids.tolist() if value]


def _without(left: list[int], right: list[int]) -> list[int]:
    return list((Counter(left) - Counter(right)).elements())


def _same_over_the_run(difference: Difference) -> bool:
    ours, theirs = (trace.arrays["sample_ids"].flatten().sort().values for trace in (difference.left, difference.right))
    ours, theirs = ours[ours != 0], theirs[theirs != 0]
    return torch.equal(ours, theirs)
