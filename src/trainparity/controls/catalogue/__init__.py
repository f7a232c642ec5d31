"""The catalogue: right loops, which must never be `different`, and wrong ones, each with the cause it must be given."""

from trainparity.controls.catalogue import forward, gradient, inputs, loss, parameters, reduction, right, update
from trainparity.controls.catalogue.control import PLAIN, Control
from trainparity.controls.loop import Ddp, Fsdp, Loop

__all__ = ["RIGHT", "WRONG", "Control"]


def _right(loop: type[Loop], **options: object) -> Control:
    return Control(loop=loop, **options)  # type: ignore[arg-type]


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
]
"""Always `different`, for this cause."""
