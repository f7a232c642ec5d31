"""Which function computes which measure."""

from collections.abc import Callable
from typing import Any

from trainparity.claims import quantities
from trainparity.claims.measures import compilation, loading, memory, outcome, parity, time
from trainparity.claims.measures.figure import Figure
from trainparity.claims.study import Study

MEASURES: dict[type[Any], Callable[[Any, Study], Figure]] = {
    quantities.Weights: parity.weights,
    quantities.Shards: parity.shards,
    quantities.SameTraining: parity.same_training,
    quantities.Parameters: parity.parameters,
    quantities.Seconds: time.seconds,
    quantities.TimeRatio: time.time_ratio,
    quantities.GainRatio: time.gain_ratio,
    quantities.MemoryRatio: memory.memory_ratio,
    quantities.Memory: memory.memory,
    quantities.FastestWithin: time.fastest_within,
    quantities.Compilation: compilation.compilation,
    quantities.BreakEven: compilation.break_even,
    quantities.GraphBreaks: compilation.graph_breaks,
    quantities.Outcome: outcome.outcome,
    quantities.Accuracy: outcome.accuracy,
    quantities.LearnsAlike: parity.learns_alike,
    quantities.LossesFall: parity.losses_fall,
    quantities.LoadingTime: loading.loading_time,
    quantities.BatchesHeld: loading.batches_held,
    quantities.LoaderFailures: loading.loader_failures,
    quantities.Telemetry: outcome.telemetry,
}
