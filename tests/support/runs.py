"""Real runs for tests: specs, and the parity phase in this process."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch

from trainparity import workloads
from trainparity.data import datasets
from trainparity.data.store import load as load_data
from trainparity.params import Configuration, Digits, Optimizer, Parity, Timing, Train, Workload
from trainparity.parity.noise.floor import NoiseFloor
from trainparity.parity.recording.trace import Trace
from trainparity.parity.verdict import Run, judge
from trainparity.placement import Placement
from trainparity.records.run import Status
from trainparity.records.verdict import Verdict
from trainparity.strategies import Execution
from trainparity.training.loop import Trainer
from trainparity.training.parity_phase import ParityPhase
from trainparity.training.resuming import Resuming
from trainparity.training.spec import RunSpec

SGD = Optimizer(name="sgd", lr=0.1, momentum=0.9)
ADAM = Optimizer(name="adam", lr=1e-3)
CPU = torch.device("cpu")


def prepared(folder: Path, limit: int = 200) -> Path:
    """Prepare a few digits; 200 samples and batches of 32 leave an uneven last batch of 8."""
    datasets.prepare(Digits(name="digits", limit=limit), folder / "data", folder / "downloads")
    return folder / "data"


def configuration(strategy: str = "single", **settings: Any) -> Configuration:
    return Configuration.model_validate({"strategy": strategy, "device": "cpu", "precision": "fp32", **settings})


def spec(
    folder: Path,
    dataset: Path,
    run: str,
    *,
    settings: Configuration | None = None,
    reference: Path | None = None,
    seed: int = 0,
    workload: str = "tests.support.mlp:Mlp",
    steps: int = 20,
    window: int = 10,
    optimizer: Optimizer = SGD,
    options: dict[str, Any] | None = None,
    **train: Any,
) -> RunSpec:
    settings = settings or configuration()
    return RunSpec(
        run=run,
        workload=Workload(name=workload, options=options or {}),
        dataset=Digits(name="digits"),
        train=Train(seed=seed, epochs=100, max_steps=steps, global_batch_size=32, optimizer=optimizer, **train),
        parity=Parity(twins=3, window=window),
        twins=3 if reference is None else 0,
        timing=Timing(warmup_steps=1, steps=2),
        configuration=settings,
        placement=Placement(
            device="cpu", backend="gloo" if settings.distributed else None, num_threads=1, emulated=None
        ),
        fingerprint="test",
        code="test",
        device_name="test",
        data=dataset,
        reference=reference,
        work=folder / run,
    )


def trainer_of(
    spec: RunSpec, *, twin: int = 0, kind: type[Trainer] = Trainer, execution: Execution | None = None
) -> Trainer:
    replicas = spec.configuration.world_size
    return kind(
        workloads.load(spec.workload.name, spec.workload.options),
        load_data(spec.data),
        spec.train,
        spec.configuration,
        execution or Execution(device=CPU, num_replicas=replicas),
        order=twin,
    )


def train(spec: RunSpec, *, twin: int = 0, stop: Callable[[], bool] = lambda: False, **options: Any) -> Run:
    """Run the parity phase of a spec in this process and read what it left."""
    run_phase(spec, twin=twin, stop=stop, **options)
    return load(spec, f"twins/{twin}" if twin else "")


def run_phase(spec: RunSpec, *, twin: int = 0, stop: Callable[[], bool] = lambda: False, **options: Any) -> None:
    """Run the parity phase of a spec in this process, as one of its ranks."""
    trainer = trainer_of(spec, twin=twin, **options)
    resuming = partial(Resuming, stop_requested=stop, before_checkpoint=lambda: None)
    ParityPhase(spec, trainer, twin=twin, resuming=resuming).run(lambda loss: None)


def load(spec: RunSpec, part: str = "") -> Run:
    """Read a run's trace as `compare` would."""
    settings = spec.configuration.model_dump(include=set(Status.model_fields) - {"device"})
    status = Status.model_validate({"run": spec.run, "status": "trained", **settings})
    return Run(status, Trace.load(spec.work / "state" / part))


class Reference:
    """A trained reference with its twins and floor."""

    def __init__(self, folder: Path, dataset: Path, *, main: bool = True, **settings: Any) -> None:
        self.folder, self.dataset, self.settings = folder, dataset, settings
        self.spec = spec(folder, dataset, "reference", **settings)
        if not main:  # another rank trains it
            return
        self.run = train(self.spec)
        self.twins = [train(self.spec, twin=i) for i in (1, 2, 3)]
        assert self.run.trace
        self.floor = NoiseFloor(self.run.trace, [t.trace for t in self.twins if t.trace])

    def candidate(self, name: str, settings: Configuration, **changes: Any) -> RunSpec:
        """Return the spec of a run that follows this reference."""
        merged = {**self.settings, **changes, "settings": settings}
        return spec(self.folder, self.dataset, name, reference=self.spec.work / "state", **merged)

    def judge(self, run: Run, margin: float = 16.0) -> Verdict:
        return judge(self.run, run, self.floor, margin)
