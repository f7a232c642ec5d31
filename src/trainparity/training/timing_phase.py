"""The timed phase: no trace, no determinism flags; warm-up and compilation apart from the timed steps."""

import time
from collections.abc import Callable
from datetime import UTC, datetime

import torch

from trainparity.measure import compilation
from trainparity.measure.clocks import synchronise
from trainparity.measure.flops import count_flops, peak_flops
from trainparity.measure.memory import peaks, reset_peaks
from trainparity.measure.utilisation import UtilisationSampler
from trainparity.params import Timing as Settings
from trainparity.records.timing import Memory, Timing
from trainparity.training.loop import Trainer
from trainparity.training.spec import RunSpec


def measure(spec: RunSpec, settings: Settings, trainer: Trainer, progress: Callable[[], None]) -> Timing:
    """Train warm-up steps, then timed steps; every rank must call it and gets the same record.

    A step's time starts before its data is fetched and ends when the device is done; of the ranks' times
    the longest counts.
    """
    device = trainer.execution.device
    total = settings.warmup_steps + settings.steps
    batches = trainer.batches(0, total, spec.configuration.loader)
    compiled = spec.configuration.compile != "none"
    compilation.reset()
    times, waits = [], []
    warm_from = time.perf_counter()
    no_caches = torch.compiler.config.patch(force_disable_caches=True)  # type: ignore[attr-defined]
    with UtilisationSampler(device) as utilisation, no_caches:
        for step in range(total):
            if step == settings.warmup_steps:
                warmup_s = time.perf_counter() - warm_from
                reset_peaks(device)
                utilisation.start()
            started = time.perf_counter()
            micro_batches = next(batches)
            fetched = time.perf_counter()
            trainer.step(step, micro_batches)
            synchronise(device)
            times.append(time.perf_counter() - started)
            waits.append(fetched - started)
            progress()
    memory = peaks(device)
    seconds, graphs, breaks = compilation.read() if compiled else (None, None, None)
    timed = slice(settings.warmup_steps, None)
    slowest = trainer.strategy.gather(torch.tensor([times[timed], waits[timed]], dtype=torch.float64)).amax(0) * 1e3
    return Timing(
        run=spec.run,
        date=datetime.now(UTC).isoformat(timespec="seconds"),
        fingerprint=spec.fingerprint,
        device_name=spec.device_name,
        world_size=trainer.execution.world_size,
        num_threads=spec.placement.num_threads,
        global_batch_size=spec.train.global_batch_size,
        step_ms=slowest[0].tolist(),
        wait_ms=slowest[1].tolist(),
        loader_failures=int(trainer.strategy.gather(torch.tensor(len(trainer.loader_failures))).sum()),
        warmup_s=warmup_s,
        compile_s=seconds,
        graphs=graphs,
        graph_breaks=breaks,
        break_places=compilation.break_places() if compiled else [],
        memory=_largest(trainer, memory),
        flops_per_step=_flops_per_step(trainer),
        peak_flops_per_s=trainer.execution.world_size * peak_flops(device, trainer.precision),
        utilisation=utilisation.result(),
    )


def _largest(trainer: Trainer, memory: Memory) -> Memory:
    """Return the ranks' largest peaks."""
    names = list(Memory.model_fields)
    values = [getattr(memory, name) for name in names]
    local = torch.tensor([-1.0 if value is None else value for value in values], dtype=torch.float64)
    largest = trainer.strategy.gather(local).amax(0).tolist()
    return Memory.model_validate({name: value for name, value in zip(names, largest, strict=True) if value >= 0})


def _flops_per_step(trainer: Trainer) -> float | None:
    """Count two samples' forward and backward on tensors without data, times half the global batch.

    Two, as BatchNorm refuses to train on a single value of a channel, which one image of one pixel is.
    """
    one, two = (trainer.dataset.batch(torch.zeros(count, dtype=torch.int64)) for count in (1, 2))
    model = trainer.workload.build_model(one).to("meta")
    batch = {name: tensor.to("meta") for name, tensor in trainer.with_randomness(two, 0).items()}
    flops = count_flops(lambda: trainer.workload.loss(model, batch).backward())  # type: ignore[no-untyped-call]
    return None if flops is None else flops / 2 * trainer.train.global_batch_size
