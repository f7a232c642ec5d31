"""The catalogue: right loops, which must never be `different`, and wrong ones, each with the cause it must be given."""

from trainparity.controls.catalogue import (
    coarse,
    forward,
    gradient,
    inputs,
    kinds,
    loss,
    parameters,
    reduction,
    right,
    update,
)
from trainparity.controls.catalogue.control import PLAIN, Control
from trainparity.controls.loop import Ddp, Fsdp, Loop

__all__ = ["RIGHT", "WRONG", "Control"]


def _right(loop: type[Loop], **options: object) -> Control:
    return Control(loop=loop, **options)  # type: ignore[arg-type]


_COARSE = ("conv-groupnorm", "transformer")
"""Models whose twins are near enough to one another in coarse formats."""


def _in_bf16(loop: type[Loop], cause: str) -> Control:
    return Control(loop=loop, cause=cause, against=right.InBf16, models=_COARSE)


RIGHT = [
    _right(right.Itself, models=(*PLAIN, "conv-batchnorm", "mlp-dropout")),
    _right(right.Backwards, models=(*PLAIN, "conv-batchnorm")),
    _right(right.Scaled, models=(*PLAIN, "conv-batchnorm")),
    *(
        _right(loop)
        for loop in (right.Accumulated, right.AccumulatedByFour, right.Uneven, right.Replicas, right.Compiled)
    ),
    *(_right(loop, num_ranks=2) for loop in (Ddp, right.DdpAccumulated, Fsdp, right.FsdpAccumulated)),
    _right(right.AccumulatedInBf16, against=right.InBf16, models=("conv-groupnorm", "transformer")),
    _right(right.ChannelsLast, models=("conv-groupnorm", "conv-batchnorm")),
    _right(right.CalledByParts, models=("mlp", "conv-groupnorm")),
    _right(right.Validated),
    _right(right.CancellingAccumulated, against=right.Cancelling),
    _right(right.UnevenShards, against=right.OddBatch, num_ranks=2),
    _right(coarse.AccumulatedInFp16, against=coarse.InFp16, models=_COARSE),
    _right(coarse.CompiledInBf16, against=right.InBf16, models=("swin", "convnext")),
    *(
        _right(loop, against=coarse.InFsdpBf16, models=_COARSE, num_ranks=2)
        for loop in (coarse.RanksInFsdpBf16, coarse.AccumulatedInFsdpBf16)
    ),
    _right(kinds.GanAccumulated, against=kinds.Gan, models=("mlp", "conv-groupnorm")),
    _right(kinds.AccumulatedInClosure, against=kinds.InClosure),
    *(_right(loop, models=("mlp",), num_ranks=2) for loop in (kinds.TensorParallel, kinds.TensorParallelAccumulated)),
]
"""Never `different`."""

WRONG = [
    *(Control(loop=loop, cause="loss-normalisation") for loop in (loss.Undivided, loss.MeanOfMeans)),
    *(
        Control(loop=loop, cause="loss-normalisation", num_ranks=2)
        for loop in (loss.SummedOverRanks, loss.UnevenRanks, loss.UnevenRanksOfShards)
    ),
    Control(loop=loss.ContrastOfFewer, cause="batch-coupled-loss", against=right.Contrast),
    *(Control(loop=loop, cause="loss-or-targets") for loop in (loss.LabelsShifted, loss.SoftmaxTwice, loss.Penalised)),
    Control(loop=forward.SoftmaxInTheModel, cause="forward"),
    Control(loop=gradient.HalvedOnItsWay, cause="backward"),
    *(Control(loop=loop, cause="samples") for loop in (inputs.SampleLeftOut, inputs.SampleTwice, inputs.EpochNotSet)),
    Control(loop=inputs.NotSharded, cause="samples", num_ranks=2),
    Control(loop=inputs.PaddedShards, cause="samples", num_ranks=2, against=right.OddBatch),
    Control(loop=forward.LocalStatistics, cause="batchnorm-statistics", models=("conv-batchnorm",)),
    Control(loop=forward.LocalStatisticsOfRanks, cause="batchnorm-statistics", models=("conv-batchnorm",), num_ranks=2),
    Control(loop=forward.OtherMomentum, cause="buffers-only", models=("conv-batchnorm",)),
    Control(
        loop=forward.RunningStatisticsOfRanks,
        cause="buffers-only",
        models=("conv-batchnorm",),
        against=right.SameMicroBatches,
        num_ranks=2,
    ),
    Control(loop=forward.EvaluationMode, cause="eval-mode", models=("conv-batchnorm", "mlp-dropout")),
    Control(loop=forward.DropoutDrawnOtherwise, cause="randomness", models=("mlp-dropout",)),
    Control(loop=forward.SharedDropoutSeed, cause="randomness", models=("mlp-dropout",), num_ranks=2),
    Control(loop=forward.OtherNoise, cause="randomness", against=forward.KnownNoise),
    Control(loop=forward.HalfPrecision, cause="precision"),
    Control(loop=forward.ScaleTooHigh, cause="precision"),
    Control(loop=inputs.OtherPreprocessing, cause="inputs"),
    Control(loop=gradient.BackwardSkipped, cause="missing-backward"),
    *(Control(loop=loop, cause="gradients-not-zeroed") for loop in (gradient.NeverZeroed, gradient.ZeroedTooEarly)),
    Control(loop=gradient.ShardsZeroedTooEarly, cause="gradients-not-zeroed", num_ranks=2),
    *(
        Control(loop=loop, cause="clipping")
        for loop in (
            gradient.ClippedEachMicroBatch,
            gradient.NotClipped,
            gradient.OtherLimit,
            gradient.ThinnedAfterClipping,
        )
    ),
    *(
        Control(loop=loop, cause="clipping", against=right.Unclipped)
        for loop in (gradient.ClippedByHand, gradient.CutByHand)
    ),
    Control(loop=gradient.LocalNorms, cause="clipping", num_ranks=2),
    Control(loop=gradient.ClippedWhileScaled, cause="grad-scaler"),
    Control(loop=gradient.NotUnscaled, cause="grad-scaler", against=right.Unclipped),
    Control(loop=update.LinearlyScaledRate, cause="learning-rate"),
    Control(loop=update.SteppedPerMicroBatch, cause="schedule"),
    Control(loop=update.SteppedPerRank, cause="schedule", num_ranks=2),
    *(
        Control(loop=loop, cause="optimizer-state")
        for loop in (update.OtherWeightDecay, update.StateLost, update.OtherOptimizer)
    ),
    Control(loop=update.DecayedByAHook, cause="update"),
    *(Control(loop=loop, cause="weights-not-loaded") for loop in (parameters.OtherSeed, parameters.HeadNotLoaded)),
    Control(loop=parameters.NotTied, cause="weights-not-loaded", models=("transformer",)),
    *(Control(loop=loop, cause="frozen-parameter") for loop in (parameters.Frozen, parameters.Detached)),
    Control(loop=parameters.HeadNotInOptimizer, cause="parameters-not-updated"),
    Control(loop=parameters.StaleOptimizer, cause="parameters-not-updated", num_ranks=2),
    *(
        Control(loop=loop, cause="ranks-disagree", num_ranks=2)
        for loop in (
            reduction.WrapperBypassed,
            reduction.WrongMicroBatchSynchronised,
            reduction.PartlyReduced,
            reduction.UsedOnOneRank,
        )
    ),
    _in_bf16(coarse.UndividedInBf16, "loss-normalisation"),
    _in_bf16(coarse.LabelsShiftedInBf16, "loss-or-targets"),
    _in_bf16(coarse.SampleLeftOutInBf16, "samples"),
    _in_bf16(coarse.NotClippedInBf16, "clipping"),
    _in_bf16(coarse.LinearlyScaledRateInBf16, "learning-rate"),
    _in_bf16(coarse.OtherWeightDecayInBf16, "optimizer-state"),
    Control(loop=coarse.ClippedWhileScaledInFp16, cause="grad-scaler", against=coarse.InFp16, models=_COARSE),
    *(
        Control(loop=loop, cause=cause, against=coarse.InFsdpBf16, models=_COARSE, num_ranks=2)
        for loop, cause in (
            (coarse.UnevenRanksInFsdpBf16, "loss-normalisation"),
            (coarse.NeverReducedInFsdpBf16, "ranks-disagree"),
        )
    ),
    *(
        Control(loop=loop, cause=cause, against=kinds.Gan, models=("mlp", "conv-groupnorm"))
        for loop, cause in (
            (kinds.FasterGenerator, "learning-rate"),
            (kinds.DiscriminatorNotZeroed, "gradients-not-zeroed"),
        )
    ),
    *(
        Control(loop=loop, cause=cause, against=kinds.InClosure)
        for loop, cause in ((kinds.ClosureNotZeroed, "gradients-not-zeroed"), (kinds.FasterInClosure, "learning-rate"))
    ),
    Control(loop=kinds.ShardedOverTensorParallel, cause="samples", models=("mlp",), num_ranks=2),
]
"""Always `different`, for this cause."""
