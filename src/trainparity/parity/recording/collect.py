"""What all ranks' forward and backward passes of a step have shown, as arrays of a trace. Every rank calls these."""

from collections.abc import Mapping, Set

import torch
from torch import Tensor

from trainparity.parity.recording import ranks
from trainparity.parity.recording.backward import BackwardHooks
from trainparity.parity.recording.backward_passes import MAX_MICRO_BATCHES
from trainparity.parity.recording.forward import ForwardHooks
from trainparity.parity.recording.identity import never_zero
from trainparity.parity.recording.passes import Pass
from trainparity.parity.recording.signs import STAND_IN
from trainparity.parity.recording.sketch import mix

MAX_SAMPLES = 4096
"""Samples of a step that are kept one by one; of more, only their common hash."""


def collect(
    forward: ForwardHooks, backward: BackwardHooks, own: Mapping[str, Tensor], groups: Tensor, scale: float
) -> dict[str, Tensor]:
    """Collect what passes show, and some numbers of each rank, [R] each by its name, in three messages for all.

    Args:
        forward: What has seen the forward passes.
        backward: What has seen the backward passes.
        own: This rank's numbers, scalars.
        groups: The first rank of each rank's group, int64 [R].
        scale: What the loss was multiplied with, by a gradient scaler.
    """
    thrown_away = backward.passes.thrown_away
    made = ranks.gather(backward.passes.sketch_without(thrown_away)).mean(0)
    aside = backward.passes.aside | (thrown_away if backward.is_applied(made) else set())
    passes = [one for one in forward.passes() if not one.is_of_another_loss(thrown_away)]
    samples = [one.samples[one.samples != STAND_IN] for one in passes if one.samples is not None]
    every = ranks.gather_each({
        **{name: value[None] for name, value in own.items()},
        **_of_forward(forward, passes, samples, aside),
        **_of_backward(backward),
    })  # fmt: skip
    elsewhere = [one for one in passes if one.source is not None and one.source not in passes]
    return {
        **{name: torch.cat(every[name]) for name in own},
        **_sums(every, groups, scale),
        **(_given_by_output(every, groups, scale) if len(forward.seen.first_outputs) > 1 else {}),
        **_samples(every, groups),
        "evaluating": torch.cat(every["evaluating"]).any(0),
        "made_elsewhere": torch.tensor(len(elsewhere)),
        "judged_elsewhere": torch.tensor(sum(one.judged_elsewhere for one in passes)),
        "rank/reached": torch.cat(every["reached"]),
        "rank/random_state": torch.cat(every["random_state"]),
        "rank/drew": torch.cat(every["drew"]),
        "closure/held": torch.tensor(backward.carried, dtype=torch.float64),
        "rank/backwards": torch.cat(every["backwards"]),
        "rank/held": _padded(every["held"]),
        "rank/left": _padded(every["left"]),
        "rank/after": torch.cat(every["after"]),
        "rank/micro": _padded(every["micro"]),
    }


def _of_forward(forward: ForwardHooks, passes: list[Pass], samples: list[Tensor], aside: Set[int]) -> dict[str, Tensor]:
    """Return what this rank's forward passes show, without gradients of backward passes `aside`."""
    reached = [one for one in passes if one.samples is not None and one.reached]
    return {
        "names": ranks.keys_of(forward.seen.names),
        "sums": forward.sums(passes, aside).transpose(0, 1),
        "numbers": forward.seen.numbers(passes),
        "given": forward.seen.given_back(passes, aside)[:MAX_MICRO_BATCHES],
        "given_by_output": forward.seen.given_by_output(passes, aside)[:MAX_MICRO_BATCHES],
        "aside": torch.as_tensor(forward.origins.aside)[None],
        "reached": torch.tensor([len(reached)]),
        "evaluating": torch.stack([one.evaluating for one in passes]).any(0, keepdim=True)
        if passes
        else torch.zeros(1, len(forward.modules), dtype=torch.bool),
        "random_state": torch.tensor([passes[0].state if passes else 0]),
        "drew": torch.tensor([sum(one.drew for one in passes)]),
        "samples": never_zero(torch.cat(samples) if samples else torch.zeros(0, dtype=torch.int64)),
        "rows": torch.tensor([len(part) for part in samples], dtype=torch.int64),
    }


def _of_backward(backward: BackwardHooks) -> dict[str, Tensor]:
    """Return what this rank's backward passes show."""
    return {
        "backwards": torch.tensor([backward.passes.trained]),
        "held": backward.passes.held(),
        "left": backward.left(),
        "after": backward.after[None],
        "micro": backward.passes.sketches(),
    }


def _sums(every: dict[str, list[Tensor]], groups: Tensor, scale: float) -> dict[str, Tensor]:
    """Return what was summed over the samples: of the ranks of a group, which pass the same ones, the first counts."""
    firsts = _firsts(groups)
    keys = every["names"][ranks.rank()]
    sums = ranks.by_key(keys, every["names"], every["sums"])[firsts].sum(0).transpose(0, 1)
    return {
        "activation/sketch": sums[0],
        "activation/numbers": ranks.by_key(keys, every["names"], every["numbers"])[firsts].sum(0),
        # Losses that are means over a rank's samples have gradients that DDP and FSDP average.
        "activation_gradient/sketch": sums[1] / len(firsts) / scale,
        "rank/given": _once(_padded(every["given"]), groups) / scale,
        "aside": torch.cat(every["aside"])[firsts].sum(),
    }


def _given_by_output(every: dict[str, list[Tensor]], groups: Tensor, scale: float) -> dict[str, Tensor]:
    return {"rank/given_by_output": _once(_padded(every["given_by_output"]), groups) / scale}


def _once(by_rank: Tensor, groups: Tensor) -> Tensor:
    """Leave out what other ranks of a group have seen than its first [R, ...]: they pass the same samples."""
    by_rank[groups != torch.arange(len(groups))] = 0
    return by_rank


def _samples(every: dict[str, list[Tensor]], groups: Tensor) -> dict[str, Tensor]:
    by_rank = _padded(every["samples"])
    # A group's samples count once, unless its ranks, against all sense, see different ones.
    apart = by_rank if (by_rank != by_rank[groups]).any() else by_rank[_firsts(groups)]
    everyone = apart[apart != 0].sort().values
    return {
        "rank/rows": _padded(every["rows"]),
        "rank/samples": by_rank[:, :MAX_SAMPLES],
        "samples": mix(everyone).sum(),
        "num_samples": torch.tensor(len(everyone)),
        "sample_ids": everyone[:MAX_SAMPLES],
    }


def _firsts(groups: Tensor) -> list[int]:
    return sorted(set(groups.tolist()))


def _padded(parts: list[Tensor]) -> Tensor:
    """Stack tensors [n, ...], zero-padded to the largest n: [R, n, ...]."""
    return torch.nn.utils.rnn.pad_sequence(parts, batch_first=True)
