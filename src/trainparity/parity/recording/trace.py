"""The trace: what a run records at each step so that two runs can be compared without their tensors."""

import json
import math
from pathlib import Path
from typing import Any, Literal

from pydantic import Field
from safetensors import SafetensorError, safe_open
from safetensors.torch import load, save
from torch import Tensor

from trainparity.parity.recording.integrity import END, checksum, flaw
from trainparity.records.base import Record, RecordError, Settings, refuse_endless
from trainparity.records.files import replacing

TOGETHER = "Together"
"""Class of what holds several models that one optimizer updates, where nobody has named them."""

MODELS = "models"
"""Folder in a run's for the traces of further models, which have optimizers of their own."""

ENDED = "ended"
"""Setting of a loop: why its recording ended before it should have."""

BY_ITSELF = "the training ended"
"""What that begins with where the training ended then, by an error, and went not on without being recorded."""


class Layout(Record):
    """What a trace is about, and the facts of its run that do not change from step to step."""

    version: Literal[14] = 14
    parameters: dict[str, list[int]]
    """Shapes by name, in the module's order, as in an unwrapped model."""
    buffers: dict[str, list[int]]
    steps: list[int]
    """The T optimizer steps that are traced, from 0."""
    begun: float = 0.0
    """When recording began, in seconds since 1970; 0: not noted."""
    recording: str = ""
    """A name that no other recording has, whatever the clock says; empty: an earlier version has not written it."""
    made: int = 0
    """How many steps were made; 0: an earlier version has not written it."""
    written: bool = False
    """Whether, after the last step, the loop wrote into the weights as between no steps, or an unrecorded optimizer."""
    window: int
    """Steps between restarts from the reference's state; 0 if there are none."""
    precision: str
    unit_roundoff: float
    """Half the relative spacing of numbers in the precision computed in."""
    rounds_unseen: bool = False
    """Whether gradients alone show that precision, as of an autocast inside of what is compiled."""
    stored_roundoff: float
    """The same of the format that weights are stored in, and so updates round to; the coarsest that is trained."""
    stored_apart: dict[str, float] = Field(default_factory=dict)
    """The same of parameters that are stored in another format, as of a frozen base under adapters, by name."""
    sketch_size: int
    world_size: int
    """R, the number of ranks."""
    groups: list[int] = Field(default_factory=list)
    """First rank of each rank's group; the ranks of a group train one replica together, on the same samples."""
    twin: int = 0
    """The twin's number; 0 for no twin."""
    activations: list[str] = Field(default_factory=list)
    """Modules whose outputs were seen, in the order of the forward pass."""
    outputs: list[str] = Field(default_factory=list)
    """Those among them that the loop got from the model, or from parts of it, and gave to no other part."""
    calls: dict[str, int] = Field(default_factory=dict)
    """How often the loop called parts that go on from others, by what they showed: at most, for one backward pass."""
    given_outputs: list[str] = Field(default_factory=list)
    """Of what the model returns, the first, whose gradients are known pass by pass."""
    numbering: list[str] = Field(default_factory=list)
    """Inputs that number what a pass holds, as the graphs of a batch by their nodes."""
    uneven: bool = False
    """Whether samples of its passes are of several lengths, as where each batch is padded to its longest one."""
    trained_before: list[str] = Field(default_factory=list)
    """Parameters that had been written in place more often, when recording began, than to initialise them."""
    differentiable: bool = False
    """Whether gradients were made that can be differentiated again (`create_graph`), as for a gradient penalty."""
    loss_coupled_by: str = ""
    """The operation by which the loss of a pass couples its samples, as a contrastive one; empty: none was seen."""
    loss_coupled_sizes: list[int] = Field(default_factory=list)
    """Those of its factors, where it is a product of matrices."""
    loss_reads: list[str] = Field(default_factory=list)
    """Parameters that the loss takes by itself, not through what the model returns: a temperature, a penalty's."""
    loss_gathered: bool = False
    """Whether that operation takes the samples of all ranks, which the loop has gathered."""
    loss_roundoff: float = 0.0
    """Unit roundoff of the coarsest format in which the loss is made of what the model returns; 0: none was seen."""
    modules: dict[str, str] = Field(default_factory=dict)
    """Class by name of every module; one that extends PyTorch's names both, as `Norm(BatchNorm2d)`."""
    tied: dict[str, str] = Field(default_factory=dict)
    """Other names of parameters that are shared."""
    modal: list[str] = Field(default_factory=list)
    """Modules whose training and evaluation modes differ in what they compute: active dropout, batch statistics."""
    dropped: dict[str, float] = Field(default_factory=dict)
    """Part of its input that each active dropout drops, by name."""
    optimizer: str = ""
    """Class of the optimizer."""
    optimizers: dict[str, str] = Field(default_factory=dict)
    """Class of that which holds a parameter, by its name, where several of more than one class step together."""
    without_limit: bool = False
    """Whether its steps are PyTorch's code, which shortens no gradient."""
    hooked: bool = False
    """Whether hooks of the loop's own are called in its steps."""
    choices: dict[str, str] = Field(default_factory=dict)
    """Its options that are words, as `line_search_fn`, or None."""
    corrected_in_double: bool = False
    """Whether its steps surely made Adam's bias corrections in double precision."""
    code: dict[str, str] = Field(default_factory=dict)
    """What stands for each file of the script's own code when it was loaded, see `code.loaded`."""
    settings: Settings = Field(default_factory=dict)
    """Of the loop, where it is known: strategy, wrapper, samples by identity or by content."""
    environment: dict[str, str] = Field(default_factory=dict)
    """What the run computed with, see `conditions`: versions, device, threads, flags, environment variables."""
    checksum: str = ""
    """SHA-256 of the other fields and of trace.safetensors; written by `Trace.save`."""

    @property
    def cut_short(self) -> str:
        """Why the recording ended while the training went on; empty: it did not."""
        ended = str(self.settings.get(ENDED, ""))
        return "" if ended.startswith(BY_ITSELF) else ended

    def numbers(self) -> dict[str, int]:
        """Return how many numbers each parameter has, by name."""
        return {name: math.prod(shape) for name, shape in self.parameters.items()}

    def updated_by(self) -> list[str]:
        """Return the class of the optimizer of each parameter."""
        return [self.optimizers.get(name, self.optimizer) for name in self.parameters]

    def stored(self) -> dict[str, float]:
        """Return the unit roundoff of the format that each parameter is stored in, by name."""
        return {name: self.stored_apart.get(name, self.stored_roundoff) for name in self.parameters}

    def windows(self) -> list[slice]:
        """Return the traced steps of each window."""
        starts = [
            i for i, step in enumerate(self.steps) if i == 0 or self._window(step) != self._window(self.steps[i - 1])
        ]
        return [slice(a, b) for a, b in zip(starts, [*starts[1:], len(self.steps)], strict=True)]

    def rows_that_begin(self) -> list[int]:
        """Return the rows of steps that begin a window."""
        return [window.start for window in self.windows()]

    def rows_that_go_on(self) -> list[int]:
        """Return the rows of steps whose step before is traced, too, in the same window: they begin as that ended."""
        rows = (row for window in self.windows() for row in range(window.start + 1, window.stop))
        return [row for row in rows if self.steps[row] == self.steps[row - 1] + 1]

    def _window(self, step: int) -> int:
        return step // self.window if self.window else 0


class Trace:
    """Recorded numbers by name: `arrays`, see `trainparity.parity.recording.watch.StepWatch` for how each comes about.

    T steps, P parameters, B buffers, A activations, R ranks, S the sketch's size.

    - `gradient`, `weight`, `buffer`: `<kind>/sketch` float64 [T, P, S], `<kind>/norm` [T, P], `<kind>/digest` int64.
      Gradients after reduction and unscaling, before clipping; weights and buffers after the update.
    - `gradient/levels` [T, P, 16]: which part of a gradient's elements is how small, see `sketch.levels`.
    - `start/sketch` [T, P, S]: weights before the update. `activation/sketch`, `activation_gradient/sketch` [T, A, S]:
      sums over all samples of what modules return and of its gradient, see `passes.Pass`; the latter's mean over ranks,
      without the loss scale; zeros where none was seen; `activation/numbers` int64 [T, A]: of how many
      numbers these sums are. `applied/norm` [T, P]: gradients as the optimizer used them.
    - `state/norm`, `state/tensors`, `state/zeros`, `state/steps` [T, P]: the optimizer's state before the step, of how
      many tensors that is, how many of these are all zeros, and how many steps it counts; `optimizer_step` [T]: the
      most of these; `held`, `frozen` [T, P]: whether it, on any rank, holds the parameter, and whether that takes no
      gradient; `written` [T, P]: whether, not held on the first rank, it was written after the first forward pass.
    - `sequence` int64 [T]: how many steps all optimizers that the process records made before this one.
    - `setting/<name>` [T, P]: the optimizer's, as `lr`, by parameter; `loss`, `gradient_norm` [T].
    - `loss/logged` [T]: whether the loop has logged the step's loss; where it has not, that is not a number.
    - `samples` int64 [T]: hash of all ranks' samples in any order; `num_samples`; `sample_ids` [T, n] sorted, plus one.
      `aside` int64 [T]: the same hash of samples that passed without gradients, where they are known by their contents.
    - `rank/weight`, `rank/gradient` int64 [T, R]: hashes, and where ranks have others `rank/weight_apart` and
      `rank/gradient_apart` [T, P]: of which parameters; `rank/missing` [T, R, P]: no gradient there; `rank/rows`
      [T, R, n]: number of samples of each forward pass; `rank/reached` [T, R]: how many of these passes a backward pass
      came through; `rank/loss` [T, R]: the sum of the losses that these began from, without the loss scale, NaN where
      none was seen; `rank/samples` [T, R, n]: which samples, in their order, plus one (0 fills up);
      `rank/random_state`, `rank/drew` [T, R]: generators before the first
      pass, and passes that drew from them; `rank/backwards` [T, R]; `rank/held` [T, R, n]: norm of the gradients held
      before each backward pass, and of shards, in `rank/left`, after it; `rank/micro` [T, R, n, 256]: the sketch of
      each pass's own gradient; `rank/given` [T, R, n, S]: of the gradient of what each forward pass returned to the
      loop, without the loss scale, zeros unless each has a loss of its own, and `rank/given_by_output` [T, R, n, 4, S]
      for each of the first outputs, where there are several; `rank/total` [T, R, 256]: of the rank's
      part of the gradient as recorded, and for shards `rank/after`: as backward left it.
    - `closure/held` [T]: largest gradient norm that a further evaluation of the optimizer's closure began with; of such
      steps gradients, samples and passes are the first evaluation's. `closure/evaluations` [T]: how many there were.
      `closure/again`: whether the loop itself passed samples of the step again with other weights, as SAM does; then
      samples and passes are the first evaluation's.
    - `made_elsewhere` int64 [T]: rank 0's passes over what another recorded model returned; `judged_elsewhere`: those
      whose output another recorded model is given, so that its weights are part of the loss.
    - `end/sketch` [P, S], `end/digest` [P]: weights when the run ends, where they are known.
    - `end/buffer_sketch` [B, S], `end/buffer_digest` int64 [B]: running statistics then; zeros for other buffers, and
      for those that the loop has loaded after its last step.
    - `evaluating` [T, modules]; `clip/calls`, `clip/cuts` (calls that shortened the gradient), `clip/max_norm`,
      `clip/backwards` (passes before the first cut) [T], `rank/clip_norm` [T, R];
      `scale/value`, `scale/clipped`, `scale/left` [T]: the loss scale (0: none), whether gradients still carried it
      when they were clipped, and when they were applied.
    """

    def __init__(self, layout: Layout, arrays: dict[str, Tensor]) -> None:
        self.layout = layout
        self.arrays = arrays

    def numbers(self, row: int) -> dict[str, int]:
        """Return of how many numbers the sums of a step's activations are, by name."""
        counts: list[int] = self.arrays["activation/numbers"][row].tolist()
        return dict(zip(self.layout.activations, counts, strict=True))

    def save(self, folder: Path) -> None:
        """Write trace.safetensors and then trace.json, which marks the trace as complete."""
        arrays = save(self.arrays)
        with replacing(folder / "trace.safetensors") as unfinished:
            unfinished.write_bytes(arrays)
        sealed = checksum(self.layout.model_dump(mode="json"), arrays)
        self.layout.model_copy(update={"checksum": sealed}).write(folder / "trace.json")

    @classmethod
    def load(cls, folder: Path) -> "Trace":
        """Read a trace, and compare it with its checksum and its layout.

        Raises:
            RecordError: a file is missing or damaged.
        """
        path = folder / "trace.safetensors"
        for file in (folder / "trace.json", path):
            refuse_endless(file)
        try:
            layout = Layout.read(folder / "trace.json")
            with safe_open(path, "pt"):  # it compares the file's size with what its header says before all is read
                content = path.read_bytes()
        except SafetensorError as error:
            raise RecordError(f"{path}: damaged: {error}") from None
        except OSError as error:
            raise RecordError(f"{folder}: cannot be read: {error}") from None
        # Of the fields that are there: an earlier version did not know all of them.
        written = layout.model_dump(mode="json", exclude_unset=True)
        if checksum(written, content) != layout.checksum:
            raise RecordError(f"{path}: damaged: it or trace.json is not as it was written")
        try:
            # Of all formats one: what is computed of two traces wants it, and no number is lost.
            arrays = {name: a.double() if a.is_floating_point() else a for name, a in load(content).items()}
        except Exception as error:  # as of a format that is not known here
            raise RecordError(f"{path}: damaged: {error}") from None
        if found := flaw(layout, arrays):
            raise RecordError(f"{path}: damaged: {found}")
        return cls(layout, arrays)


def shared_steps(*traces: Trace) -> list[Trace]:
    """Return the traces of those steps that all of them have; of steps without any, the traces as they are."""
    steps = sorted(set.intersection(*(set(trace.layout.steps) for trace in traces)))
    return [_at(trace, steps) for trace in traces] if steps else list(traces)


def _at(trace: Trace, steps: list[int]) -> Trace:
    if trace.layout.steps == steps:
        return trace
    rows = [trace.layout.steps.index(step) for step in steps]
    layout = trace.layout.model_copy(update={"steps": steps})
    chosen = {name: array if name.startswith(END) else array[rows] for name, array in trace.arrays.items()}
    return Trace(layout, chosen)


def comparable(left: Layout, right: Layout) -> str | None:
    """Say why two traces can't be compared tensor by tensor; None if they can."""
    for name in ("parameters", "buffers"):
        ours, theirs = getattr(left, name), getattr(right, name)
        if odd := sorted(set(ours) ^ set(theirs)):
            return f"{name} of one run only: {', '.join(odd[:5])}"
        if odd := sorted(key for key in ours if ours[key] != theirs[key]):
            return f"{name} of other shapes: {', '.join(f'{k} {ours[k]} and {theirs[k]}' for k in odd[:5])}"
    for name in ("steps", "window", "sketch_size"):
        ours, theirs = getattr(left, name), getattr(right, name)
        if ours != theirs:
            return f"{name}: {_brief(ours)} and {_brief(theirs)}"
    return None


def _brief(value: Any) -> str:
    if isinstance(value, list):
        return f"{len(value)} traced to step {value[-1]}" if value else "none"
    return json.dumps(value)
