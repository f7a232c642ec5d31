"""The timed phase: no trace, no determinism flags; warm-up and compilation apart from the timed steps.

A run and its reference take turns, step by step: what slows the machine down for a while slows both, and each ratio of
the speed-up is one of neighbours.
"""

import os
from collections.abc import Callable
from datetime import UTC, datetime

import torch

from trainparity.measure import compilation
from trainparity.measure.flops import count_flops, peak_flops
from trainparity.measure.machine_load import MachineLoadMeter, own_cpu_s
from trainparity.measure.memory import peaks, reset_peaks
from trainparity.measure.utilisation import UtilisationSampler
from trainparity.params import Timing as Settings
from trainparity.records.timing import MachineLoad, Memory, Timing, Utilisation
from trainparity.strategies import Strategy
from trainparity.training import step_parts
from trainparity.training.lane import Lane, reference_lane
from trainparity.training.loop import Trainer
from trainparity.training.spec import RunSpec


def num_steps(settings: Settings, device: str, strategy: Strategy) -> int:
    """Return how many optimizer steps the run makes: warm-up, without the reference, in turns with it, in parts."""
    return settings.warmup_steps + _alone(settings, device) + settings.steps + step_parts.num_steps(strategy)


def _alone(settings: Settings, device: str) -> int:
    """Return the steps without the reference, where memory and utilisation are read.

    The first leaves gradients and optimizer state that the second finds. NVML needs some time to see a GPU busy.
    """
    return settings.steps if device == "cuda" else 2


def measure(spec: RunSpec, settings: Settings, trainer: Trainer, progress: Callable[[], None]) -> Timing:
    """Train warm-up steps, then timed steps; every rank must call it, rank 0's record is the run's.

    A step's time starts before its data is fetched and ends when the device is done; of the ranks' times
    the longest counts.
    """
    device = trainer.execution.device
    compilation.reset()
    steps = num_steps(settings, device.type, trainer.strategy)
    own = Lane(trainer, spec.configuration.loader, steps, spec.placement.num_threads)
    warmup_s = sum(own.train(settings.warmup_steps, progress))
    memory, utilisation = _peaks(own, _alone(settings, device.type), progress)
    reference, unpaired = reference_lane(spec, settings, trainer)
    machine = _take_turns(spec, settings.steps, own, reference, progress)
    times, waits, beside = _slowest(trainer, settings.steps, own, reference)
    parts = step_parts.measure_parts(own, progress)
    compiled = spec.configuration.compile != "none"
    seconds, graphs, breaks = compilation.read() if compiled else (None, None, None)
    return Timing(
        run=spec.run,
        date=datetime.now(UTC).isoformat(timespec="seconds"),
        fingerprint=spec.fingerprint,
        device_name=spec.device_name,
        world_size=trainer.execution.world_size,
        num_threads=spec.placement.num_threads,
        global_batch_size=spec.train.global_batch_size,
        step_ms=times,
        wait_ms=waits,
        parts=parts,
        reference_ms=beside if reference else [],
        unpaired=unpaired,
        machine=machine,
        loader_failures=int(trainer.strategy.gather(torch.tensor(len(trainer.loader_failures))).sum()),
        warmup_s=warmup_s,
        compile_s=seconds,
        graphs=graphs,
        graph_breaks=breaks,
        break_places=compilation.break_places() if compiled else [],
        memory=_largest(trainer, memory),
        flops_per_step=_flops_per_step(trainer),
        peak_flops_per_s=trainer.execution.world_size * peak_flops(device, trainer.precision),
        utilisation=utilisation,
    )


def _peaks(own: Lane, steps: int, progress: Callable[[], None]) -> tuple[Memory, Utilisation | None]:
    """Train some steps and return the peaks of memory in them, and what NVML saw of them."""
    device = own.trainer.execution.device
    with UtilisationSampler(device) as utilisation:
        reset_peaks(device)
        utilisation.start()
        own.train(steps, progress)
    return peaks(device), utilisation.result()


def _take_turns(
    spec: RunSpec, steps: int, own: Lane, reference: Lane | None, progress: Callable[[], None]
) -> MachineLoad | None:
    """Time both lanes' steps; who is first changes with every pair, so that a steady drift cancels too."""
    strategy = own.trainer.strategy
    used_s, meter = own_cpu_s(), MachineLoadMeter()
    for number in range(steps):
        for lane in (own, reference) if number % 2 else (reference, own):
            if lane:
                lane.step()
            if spec.beside:
                strategy.gather(torch.zeros(()))  # rank 0 alone trains the reference: the others wait here
        progress()
    every_rank_s = strategy.gather(torch.tensor(own_cpu_s() - used_s, dtype=torch.float64))
    return meter.read(float(every_rank_s[: int(os.environ.get("LOCAL_WORLD_SIZE", "1"))].sum()))


def _slowest(
    trainer: Trainer, steps: int, own: Lane, reference: Lane | None
) -> tuple[list[float], list[float], list[float]]:
    """Return the slowest rank's step times and waits, and the reference's step times, which rank 0 has: in ms."""
    beside = reference.times[-steps:] if reference else [0.0] * steps
    local = torch.tensor([own.times[-steps:], own.waits[-steps:], beside], dtype=torch.float64)
    times, waits, reference_times = (trainer.strategy.gather(local).amax(0) * 1e3).tolist()
    return times, waits, reference_times


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
