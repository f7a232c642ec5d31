"""What one step's backward passes show: each micro-batch's own gradient, and what was held before it."""

from collections.abc import Callable, Sequence, Set
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from trainparity.parity.recording.apart import has_numbers, is_captured, unseen
from trainparity.parity.recording.formats import is_inexact
from trainparity.parity.recording.given import ArrivingGradients
from trainparity.parity.recording.kinds import is_dtensor
from trainparity.parity.recording.perturb import Noise
from trainparity.parity.recording.sketch import Sketcher, norm

SIZE = 256
"""Numbers that a micro-batch's whole gradient is projected to."""

MAX_MICRO_BATCHES = 64
"""Micro-batches of a step and rank that are kept one by one."""


_ROUNDED = 0.02
"""Part of a gradient by which the sum of what backward passes made may differ from it, in any format."""


@dataclass
class _BackwardPass:
    number: int
    """As autograd counts them."""
    captured: bool
    """Whether `torch.autograd.grad` hands the parameters' gradients to the loop: what they hold stays as it is."""
    square: float = 0.0
    """Of the L2 norm of the gradients that were there before it."""
    reached: set[int] = field(default_factory=set)
    """The parameters that it came to, by identity; of passes that are not kept one by one, none."""
    sketch: Tensor = field(default_factory=lambda: torch.zeros(SIZE, dtype=torch.float64))


class BackwardHooks:
    """Hooks on every parameter of a plain model; between `begin` and `read` they look at the gradients that arrive.

    They see this rank's own gradients, before DDP averages them. FSDP2's arrive reduced, in shards: of those
    only the passes are counted, and what is held before and after them is measured.
    """

    def __init__(self, model: nn.Module, updated: Callable[[], Set[int]], ended: Callable[[bool], None]) -> None:
        """Attach to a model.

        Args:
            model: It, unwrapped.
            updated: Tells the parameters, by identity, that optimizers update: what others hold may grow for ever.
            ended: Called at the end of each backward pass, when DDP and FSDP have reduced the gradients; it is told
                whether the loop itself was handed these.
        """
        self._updated, self._ended = updated, ended
        self._counted: Set[int] = frozenset()
        self._versions: dict[int, int] = {}
        """How often each parameter had been changed in place when the first backward pass began, by its identity."""
        self._sketch = Sketcher(SIZE)
        self._handles: list[Any] = []
        self.active = False
        self.arriving = ArrivingGradients()
        embeddings = (part for part in model.modules() if isinstance(part, nn.Embedding | nn.EmbeddingBag))
        self._embeddings = {id(part.weight) for part in embeddings}  # of no product: sums of more digits
        parameters = [parameter for parameter in model.parameters() if is_inexact(parameter)]
        self._sharded = any(is_dtensor(parameter) for parameter in parameters)
        signs = (1 - 2 * torch.randint(0, 2, (len(parameters),), generator=torch.Generator().manual_seed(1))).tolist()
        self._signed = list(zip(parameters, signs, strict=True))
        for parameter, sign in self._signed:
            trained = parameter.requires_grad
            parameter.requires_grad_(True)  # half of a GAN is frozen for the time that the other one is trained
            self._handles.append(self._attach(parameter, sign))
            parameter.requires_grad_(trained)
        self.begin()

    def _attach(self, parameter: Tensor, sign: int) -> Any:
        if is_dtensor(parameter):
            return parameter.register_post_accumulate_grad_hook(self._arrived_sharded)  # type: ignore[no-untyped-call]

        def arrived(gradient: Tensor | None) -> Tensor | None:
            # None: DDP hands it back of an output that the loss leaves out, where find_unused_parameters is on.
            if gradient is None or not (self.active or self._fresh) or not has_numbers(gradient):
                return None
            return self._arrived(parameter, gradient, sign)

        return parameter.register_hook(arrived)  # type: ignore[no-untyped-call]

    def close(self) -> None:
        """Remove the hooks."""
        for handle in self._handles:
            handle.remove()

    def evaluate_again(self) -> None:
        """Note that the optimizer calls its closure again: from now on only gradients left in it are looked at."""
        self.active, self._fresh, self._counted = False, True, self._held()

    def begin(self, noise: Noise | None = None) -> None:
        """Look at a new step; a twin's `noise` is added to the gradients that arrive."""
        self._noise = noise
        self._fresh = False
        self._first = self.active and self.arriving.begin()
        """Whether the first backward pass of a step is looked at by its numbers."""
        self.carried = 0.0
        """The largest gradient norm of a parameter that a further evaluation of the closure began with."""
        self._in_backward = False
        self._passes: list[_BackwardPass] = []
        self._of_inputs: set[int] = set()
        """The numbers of backward passes that came to no parameter, and can't be differentiated again."""
        self._squares_left: list[float] = []
        self._applied = torch.zeros(SIZE, dtype=torch.float64)
        """What `total` was when it was last looked at, which is before the gradient is clipped."""
        self.after = torch.zeros(SIZE, dtype=torch.float64)
        """The sketch of this rank's shards when the last backward pass had ended; zeros if nothing is sharded."""

    @unseen
    def _arrived(self, parameter: Tensor, gradient: Tensor, sign: int) -> Tensor | None:
        """Look at a parameter's gradient; a twin's is moved."""
        if self._fresh:
            torch.autograd.Variable._execution_engine.queue_callback(self._end_first_pass)
            counts = parameter.grad is not None and id(parameter) in self._counted
            self.carried = max(self.carried, norm(parameter.grad) if counts else 0.0)  # type: ignore[arg-type]
        if not self.active:
            return None
        if not self._in_backward:
            self._enter(captured=is_captured(parameter))
        if len(self._passes) <= MAX_MICRO_BATCHES:
            self._passes[-1].reached.add(id(parameter))
            if parameter.grad is not None and id(parameter) in self._counted:
                self._passes[-1].square += norm(parameter.grad) ** 2
            self._passes[-1].sketch += sign * self._sketch(gradient)
        if self._first and id(parameter) not in self._embeddings:
            self.arriving.see(gradient)
        return self._noise(gradient) if self._noise and not gradient.is_sparse else None

    @unseen
    def _arrived_sharded(self, parameter: Tensor) -> None:
        if self.active and not self._in_backward:
            self._enter()

    def reached(self) -> None:
        """Note a backward pass; FSDP2 hands no gradient over in those of micro-batches before the last."""
        if not self.active or self._in_backward:
            return
        if self._sharded:
            self._enter()
            # Only here are shards sure to hold nothing of this pass: their hooks run after it is added.
            self._passes[-1].square = self._in_shards()
        elif not torch.is_grad_enabled():  # else a loss may be made of these gradients, as a penalty is
            number, before = torch._C._current_graph_task_id(), len(self._passes)
            ended = partial(self._reached_inputs_alone, number, before)
            torch.autograd.Variable._execution_engine.queue_callback(ended)

    def _reached_inputs_alone(self, number: int, before: int) -> None:
        """Note a backward pass that has ended and come to no parameter, if it has not: of `before` others."""
        if len(self._passes) == before:
            self._of_inputs.add(number)

    def _in_shards(self) -> float:
        """Return the square of the norm of this rank's shards of the gradient as they are now."""
        counted = (p.grad for p, _ in self._signed if id(p) in self._counted and is_dtensor(p.grad))
        return sum(norm(gradient.to_local()) ** 2 for gradient in counted)

    def _end_first_pass(self) -> None:
        self._fresh = False

    def _enter(self, *, captured: bool = False) -> None:
        self._in_backward, self._counted = True, self._held()
        self._passes.append(_BackwardPass(torch._C._current_graph_task_id(), captured))
        # A callback that a callback queues runs after those of DDP and FSDP, which reduce the gradients.
        engine = torch.autograd.Variable._execution_engine
        engine.queue_callback(lambda: engine.queue_callback(self._leave))

    def _held(self) -> Set[int]:
        """Return the parameters that optimizers update, all where those are not known: FSDP2 swaps them in a pass.

        And those that have moved since the first backward pass: by an optimizer that is not recorded.
        """
        versions = {id(parameter): parameter._version for parameter, _ in self._signed}
        self._versions = self._versions or versions
        moved = {key for key, version in versions.items() if version != self._versions[key]}
        return (self._updated() & versions.keys() or versions.keys()) | moved

    @property
    def begun(self) -> bool:
        """Whether a backward pass of the step has begun."""
        return bool(self._passes)

    @property
    def count(self) -> int:
        """Backward passes that have ended."""
        return len(self._passes) - self._in_backward

    def _leave(self) -> None:
        self._in_backward = self._first = False
        if self._sharded:
            self.after = self.total()
            self._squares_left.append(self._in_shards())
        self._ended(self._passes[-1].captured)

    @property
    def aside(self) -> Set[int]:
        """Backward passes beside the training, by their numbers: the loop asks what a gradient is, and adds another.

        As for the norm of each term's, that it logs, or weighs the terms by; or for an attack on the samples, which
        comes to no parameter. A loop that is handed all of its gradients trains with them.
        """
        captured = {one.number for one in self._passes} - {one.number for one in self._training()}
        return captured | (self._of_inputs if self._passes else set())

    @property
    def thrown_away(self) -> Set[int]:
        """Backward passes, by their numbers, whose gradients are gone when a later one begins."""
        found: set[int] = set()
        for place, later in enumerate(self._passes):
            if not later.square:
                found |= {one.number for one in self._passes[:place] if not one.reached.isdisjoint(later.reached)}
        return found

    def sketch_without(self, gone: Set[int]) -> Tensor:
        """Return the sketch of what backward passes made, but for those `gone`, by their numbers: float64 [SIZE]."""
        rest = [one.sketch for one in self._training() if one.number not in gone]
        return torch.stack(rest).sum(0) if rest else torch.zeros(SIZE, dtype=torch.float64)

    def is_applied(self, made: Tensor) -> bool:
        """Tell whether the update takes just what was made, as the mean over ranks of their sketches [SIZE].

        Then what was thrown away is another model's loss, say; a loop may also keep what it zeroes, and apply the sum.
        """
        apart = torch.linalg.vector_norm(made - self._applied)
        return bool(apart <= _ROUNDED * torch.linalg.vector_norm(self._applied))

    def _training(self) -> Sequence[_BackwardPass]:
        return [one for one in self._passes if not one.captured] or self._passes

    def total(self) -> Tensor:
        """Return the sketch of this rank's gradient as it is now, comparable with `sketches`: float64 [SIZE]."""
        total = torch.zeros(SIZE, dtype=torch.float64)
        for parameter, sign in self._signed:
            if parameter.grad is not None:
                gradient = parameter.grad
                total += sign * self._sketch(gradient.to_local() if is_dtensor(gradient) else gradient)
        self._applied = total
        return total

    @property
    def trained(self) -> int:
        """How many backward passes belong to the training."""
        return len(self._training())

    def held(self) -> Tensor:
        """Return the L2 norms of the gradients that were there before each backward pass: float64 [M]."""
        kept = self._training()[:MAX_MICRO_BATCHES]
        return torch.tensor([one.square for one in kept], dtype=torch.float64).sqrt()

    def left(self) -> Tensor:
        """Return the L2 norms of this rank's shards after each backward pass: float64 [M], of none if nothing is."""
        return torch.tensor(self._squares_left[:MAX_MICRO_BATCHES], dtype=torch.float64).sqrt()

    def sketches(self) -> Tensor:
        """Return the sketches of each backward pass's own gradient: float64 [M, SIZE]."""
        kept = [one.sketch for one in self._training()[:MAX_MICRO_BATCHES]]
        return torch.stack(kept) if kept else torch.zeros(0, SIZE, dtype=torch.float64)
