"""What all ranks' forward and backward passes of a step have shown, as arrays of a trace. Every rank calls these."""

import torch
from torch import Tensor

from trainparity.parity.recording import ranks
from trainparity.parity.recording.backward import MAX_MICRO_BATCHES, BackwardHooks
from trainparity.parity.recording.forward import ForwardHooks
from trainparity.parity.recording.identity import never_zero
from trainparity.parity.recording.passes import STAND_IN, Pass
from trainparity.parity.recording.sketch import mix

MAX_SAMPLES = 4096
"""Samples of a step that are kept one by one; of more, only their common hash."""


def forward_arrays(forward: ForwardHooks, groups: Tensor, scale: float) -> dict[str, Tensor]:
    """Collect what forward passes show; `groups` holds the first rank of each rank's group, int64 [R].

    The loss was multiplied with `scale`, by a gradient scaler.
    """
    first_of_groups = sorted(set(groups.tolist()))
    passes = forward.passes()
    sums = (
        ranks.gather_named(forward.seen.names, forward.sums().transpose(0, 1))[first_of_groups].sum(0).transpose(0, 1)
    )
    numbers = ranks.gather_named(forward.seen.names, forward.seen.numbers(passes))
    elsewhere = [one for one in passes if one.source is not None and one.source not in passes]
    reached = [one for one in passes if one.samples is not None and one.reached]
    given = ranks.gather_ragged(forward.seen.given(passes)[:MAX_MICRO_BATCHES])
    given[groups != torch.arange(len(groups))] = 0  # ranks of a group pass the same samples
    return {
        "activation/sketch": sums[0],
        "activation/numbers": numbers[first_of_groups].sum(0),
        # Losses that are means over a rank's samples have gradients that DDP and FSDP average.
        "activation_gradient/sketch": sums[1] / len(first_of_groups) / scale,
        "evaluating": passes[0].evaluating if passes else torch.zeros(len(forward.modules), dtype=torch.bool),
        "made_elsewhere": torch.tensor(len(elsewhere)),
        "judged_elsewhere": torch.tensor(sum(one.judged_elsewhere for one in passes)),
        "rank/given": given / scale,
        "rank/reached": ranks.gather(torch.tensor(len(reached))),
        "rank/random_state": ranks.gather(torch.tensor(passes[0].state if passes else 0)),
        "rank/drew": ranks.gather(torch.tensor(sum(one.drew for one in passes))),
        "aside": ranks.gather(forward.origins.aside)[first_of_groups].sum(),
        **_samples(passes, groups, first_of_groups),
    }


def _samples(passes: list[Pass], groups: Tensor, first_of_groups: list[int]) -> dict[str, Tensor]:
    samples = [one.samples[one.samples != STAND_IN] for one in passes if one.samples is not None]
    local = torch.cat(samples) if samples else torch.zeros(0, dtype=torch.int64)
    by_rank = ranks.gather_ragged(never_zero(local))
    # A group's samples count once, unless its ranks, against all sense, see different ones.
    apart = by_rank if (by_rank != by_rank[groups]).any() else by_rank[first_of_groups]
    everyone = apart[apart != 0].sort().values
    return {
        "rank/rows": ranks.gather_ragged(torch.tensor([len(part) for part in samples], dtype=torch.int64)),
        "rank/samples": by_rank[:, :MAX_SAMPLES],
        "samples": mix(everyone).sum(),
        "num_samples": torch.tensor(len(everyone)),
        "sample_ids": everyone[:MAX_SAMPLES],
    }


def backward_arrays(backward: BackwardHooks) -> dict[str, Tensor]:
    """Collect what backward passes show."""
    return {
        "closure/held": torch.tensor(backward.carried, dtype=torch.float64),
        "rank/backwards": ranks.gather(torch.tensor(backward.count)),
        "rank/held": ranks.gather_ragged(backward.held()),
        "rank/after": ranks.gather(backward.after),
        "rank/micro": ranks.gather_ragged(backward.sketches()),
    }
