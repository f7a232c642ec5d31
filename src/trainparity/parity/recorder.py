"""`trainparity.record`: the trace of anybody's training loop, from two lines in it."""

import atexit
import os
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import torch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor

from trainparity import checkpoints
from trainparity.parity.recording import ranks
from trainparity.parity.recording.forward import Samples
from trainparity.parity.recording.perturb import perturb
from trainparity.parity.recording.probe import Probe
from trainparity.parity.recording.trace import Layout, StepArrays, Trace
from trainparity.records.base import RecordError, Settings, write_csv

TWIN = "TRAINPARITY_TWIN"
"""Environment variable that makes a run a twin: its number, from 1."""

_ROUNDOFF = {torch.float64: 2.0**-53, torch.float32: 2.0**-24, torch.float16: 2.0**-11, torch.bfloat16: 2.0**-8}
_NAMES = {torch.float64: "fp64", torch.float32: "fp32", torch.float16: "fp16", torch.bfloat16: "bf16"}


def record(
    model: nn.Module,
    optimizer: Any,
    folder: str | Path,
    *,
    samples: str | Samples | None = None,
    interval: int = 50,
    first: int = 8,
    every: int = 0,
    follow: str | Path | None = None,
    twin: int | None = None,
    sketch_size: int = 64,
    settings: Settings | None = None,
) -> "Recorder":
    """Record a training run into `folder`, for `trainparity compare`. Call it on every rank, before the first step.

    Args:
        model: What the loop calls: plain, or wrapped by DDP, FSDP2, `torch.compile`, Accelerate, Fabric.
        optimizer: A `torch.optim.Optimizer`, or what Accelerate, Lightning or Fabric made of one.
        folder: Where trace.json and trace.safetensors are written when the run ends.
        samples: Where samples get their identity: a keyword argument of the model's forward that holds their
            indices, or a function of its (args, kwargs); by default their contents.
        interval: Trace every so many optimizer steps, besides the first ones. 1 traces all.
        first: Trace so many steps from the start.
        every: Judge in windows of so many steps: the reference keeps its state at each window's start.
        follow: The reference's folder; at each window's start its weights and optimizer state are loaded.
        twin: Make this run a twin: weights moved by half an ulp, recorded into `folder/twins/<twin>`. Twins
            measure the noise floor. By default the environment variable TRAINPARITY_TWIN.
        sketch_size: Numbers that one tensor is projected to.
        settings: Facts of the loop to be shown beside the verdict.

    Raises:
        ValueError: an argument is out of range.
        TypeError: the optimizer is none.
        RecordError: the run to follow has no state to load.
    """
    number = int(os.environ.get(TWIN) or 0) if twin is None else twin
    for name, value, least in (
        ("interval", interval, 1),
        ("first", first, 0),
        ("every", every, 0),
        ("twin", number, 0),
    ):
        if value < least:
            raise ValueError(f"{name} is {value}; it must be at least {least}")
    if follow is not None and not every:
        raise ValueError("follow needs every=: the number of steps after which the reference's state is loaded")
    followed = Path(folder) if number and every and follow is None else Path(follow) if follow is not None else None
    if followed is not None and (kept := Layout.read(followed / "trace.json").window) != every:
        raise RecordError(f"{followed}: recorded with every={kept}, it can't be followed with every={every}")
    return Recorder(
        Probe(model, optimizer, sketch_size=sketch_size, samples=_sample_source(samples)),
        Path(folder),
        traced=lambda step: step < first or step % interval == 0,
        every=every,
        follow=followed,
        twin=number,
        settings={"samples": "identity" if samples is not None else "content", **(settings or {})},
    )


class Recorder:
    """Records from construction until `close`, which also runs when the process ends or a `with` block does."""

    def __init__(
        self,
        probe: Probe,
        folder: Path,
        *,
        traced: Callable[[int], bool],
        every: int,
        follow: Path | None,
        twin: int,
        settings: Settings,
    ) -> None:
        self._probe, self._traced = probe, traced
        self._every, self._twin, self._settings = every, twin, settings
        self._follow = follow
        self.folder = folder / "twins" / str(twin) if twin else folder
        self._arrays, self._steps = StepArrays(), list[int]()
        self._curve: list[tuple[int, str, float]] = []
        self._loss = torch.nan
        self._facts: dict[str, Any] = {}
        self.step = 0
        """Optimizer steps made so far, those that a loss scaler skipped among them."""
        self._closed = self._busy = False
        if ranks.rank() == 0:
            (self.folder / "trace.json").unlink(missing_ok=True)
        self._after = probe.optimizer.register_step_post_hook(self._updated)
        probe.on_skipped = self._finish
        self._move()
        self._begin()
        atexit.register(self.close)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def log(self, **values: float | Tensor) -> None:
        """Note figures of the current step, such as loss: they make the curve that whole runs are compared by."""
        for name, value in values.items():
            number = float(torch.as_tensor(value).detach())
            self._curve.append((self.step, name, number))
            if name == "loss":
                self._loss = number

    def close(self) -> None:
        """Write the trace and remove all hooks."""
        if self._closed:
            return
        self._closed = True
        atexit.unregister(self.close)
        self._after.remove()
        self._probe.close()
        if not self._steps or self._facts["rank"]:
            return
        if self._curve:
            write_csv(self.folder / "curve.csv", ("step", "name", "value"), self._curve)
        Trace(self._layout(), self._arrays.stacked()).save(self.folder)

    def _layout(self) -> Layout:
        facts = {key: value for key, value in self._facts.items() if key != "rank"}
        dtype = self._precision()
        tf32 = dtype == torch.float32 and torch.cuda.is_available() and torch.backends.cuda.matmul.allow_tf32
        return Layout(
            steps=self._steps,
            window=self._every,
            precision="tf32" if tf32 else _NAMES[dtype],
            unit_roundoff=2.0**-11 if tf32 else _ROUNDOFF[dtype],
            sketch_size=self._arrays.stacked()["weight/sketch"].shape[-1],
            twin=self._twin,
            settings=self._settings,
            **facts,
        )

    def _precision(self) -> torch.dtype:
        """Return what products are computed in: autocast's choice, else that of the coarsest parameter."""
        dtypes = {parameter.dtype for parameter in self._probe.model.parameters()}
        return self._probe.forward.autocast or max(dtypes & _ROUNDOFF.keys(), key=lambda dtype: _ROUNDOFF[dtype])

    def _begin(self) -> None:
        if self._traced(self.step):
            self._probe.begin()

    def _updated(self, *_: Any) -> None:
        if not self._busy:
            self._finish()

    def _finish(self) -> None:
        """End a step: read what was seen of it, start a new window if one is due, and begin the next."""
        if self._traced(self.step):
            loss = torch.tensor(self._loss, dtype=torch.float64)
            self._arrays.append({**self._probe.end(), "loss": loss})
            self._steps.append(self.step)
            self._facts = {**self._probe.facts(), "rank": ranks.rank()}
        self.step += 1
        self._loss = torch.nan
        if self._every and self.step % self._every == 0:
            self._busy = True  # loading an optimizer's state may call its step
            self._restart()
            self._busy = False
        self._begin()

    def _restart(self) -> None:
        """Keep the state for those who follow, or load that of the run that is followed."""
        probe, name = self._probe, f"step-{self.step:06d}"
        if self._follow is None:
            folder, main = self.folder / "windows" / name, ranks.rank() == 0
            checkpoints.save(folder, probe.model, probe.optimizer, {}, {}, main=main)
            return
        folder = self._follow / "windows" / name
        if folder.is_dir():  # the last window of a run may be short
            checkpoints.load(folder, probe.model, probe.optimizer, keep_settings=True)
            self._move()
            probe.moved()

    def _move(self) -> None:
        """Move a twin's weights, as finely as its forward pass computes."""
        if not self._twin:
            return
        probe = self._probe
        seed = hash((self._twin, self.step))
        perturb(probe.model, _ROUNDOFF[self._precision()], seed)
        sharded = any(isinstance(parameter, DTensor) for parameter in probe.model.parameters())
        if self.step == 0 and probe.forward.attached and not sharded:  # autocast shows in the first forward pass only
            probe.forward.on_enter = lambda dtype: perturb(probe.model, _ROUNDOFF[dtype], seed) if dtype else None


def _sample_source(samples: str | Samples | None) -> Samples | None:
    if samples is None or callable(samples):
        return samples
    name = samples

    def keyword(inputs: tuple[Any, ...], keywords: dict[str, Any]) -> Tensor:
        named = next((i for i in inputs if isinstance(i, dict) and name in i), keywords)
        if name not in named:
            raise KeyError(f"samples={name!r}: the model's forward got no such argument; there are {sorted(named)}")
        found: Tensor = named[name]
        return found

    return keyword
