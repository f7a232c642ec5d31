"""What one step's backward passes show: each micro-batch's own gradient, and what was held before it."""

from collections.abc import Callable, Set
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from trainparity.parity.recording import stacks
from trainparity.parity.recording.apart import has_numbers, in_backward, is_captured, unseen
from trainparity.parity.recording.backward_passes import MAX_MICRO_BATCHES, SIZE, BackwardPasses
from trainparity.parity.recording.formats import is_inexact
from trainparity.parity.recording.given import ArrivingGradients
from trainparity.parity.recording.hooks import Switched
from trainparity.parity.recording.kinds import is_dtensor
from trainparity.parity.recording.later import Later
from trainparity.parity.recording.perturb import Noise
from trainparity.parity.recording.sketch import Sketcher, norm

_ROUNDED = 0.02
"""Part of a gradient by which the sum of what backward passes made may differ from it, in any format."""


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
        self._measure = stacks.sketches(Sketcher(SIZE))
        self._sketches, self._held_lengths = Later(self._measure), Later(stacks.norms)
        self.hooks = Switched()
        self.active = False
        self.arriving = ArrivingGradients()
        parameters = [parameter for parameter in model.parameters() if is_inexact(parameter)]
        self._sharded = any(is_dtensor(parameter) for parameter in parameters)
        signs = (1 - 2 * torch.randint(0, 2, (len(parameters),), generator=torch.Generator().manual_seed(1))).tolist()
        self._signed = list(zip(parameters, signs, strict=True))
        for parameter, sign in self._signed:
            trained = parameter.requires_grad
            parameter.requires_grad_(True)  # half of a GAN is frozen for the time that the other one is trained
            self.hooks.add(self._attach(parameter, sign))
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
        self.hooks.remove()

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
        for later in (self._sketches, self._held_lengths):
            later.drop()
        self.passes = BackwardPasses()
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
        if len(self.passes) <= MAX_MICRO_BATCHES:
            one = self.passes.last
            one.reached.add(id(parameter))
            if parameter.grad is not None and id(parameter) in self._counted:
                self._held_lengths.add(parameter.grad, one.hold, copied=True)
            self._sketches.add(gradient, partial(one.make, sign), copied=True)
        if self._first:
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
            self.passes.last.square = self._in_shards()
        elif not torch.is_grad_enabled():  # else a loss may be made of these gradients, as a penalty is
            ended = partial(self.passes.came_to_inputs, torch._C._current_graph_task_id(), len(self.passes))
            torch.autograd.Variable._execution_engine.queue_callback(ended)

    def _in_shards(self) -> float:
        """Return the square of the norm of this rank's shards of the gradient as they are now."""
        counted = (p.grad for p, _ in self._signed if id(p) in self._counted and is_dtensor(p.grad))
        (lengths,) = stacks.measured((gradient.to_local() for gradient in counted), stacks.norms)
        return float(lengths.square().sum())

    def _end_first_pass(self) -> None:
        self._fresh = False

    def _enter(self, *, captured: bool = False) -> None:
        self._in_backward, self._counted = True, self._held()
        self.passes.enter(torch._C._current_graph_task_id(), captured=captured)
        # A callback that a callback queues runs after those of DDP and FSDP, which reduce the gradients.
        engine = torch.autograd.Variable._execution_engine
        engine.queue_callback(lambda: engine.queue_callback(self._leave))

    def _held(self) -> Set[int]:
        """Return the parameters that optimizers update, all where those are not known: FSDP2 swaps them in a pass.

        Not what a loop moves by itself, as an average: gradients that it leaves there decide nothing.
        """
        own = {id(parameter) for parameter, _ in self._signed}
        return self._updated() & own or own

    @property
    def begun(self) -> bool:
        """Whether a backward pass of the step has begun."""
        return len(self.passes) > 0

    @property
    def count(self) -> int:
        """Backward passes that have ended, and the one in which this is asked, as by a hook on its last gradient."""
        return len(self.passes) - (self._in_backward and not in_backward())

    @unseen
    def _leave(self) -> None:
        self._in_backward = self._first = False
        for later in (self._sketches, self._held_lengths):
            later.finish()
        self.passes.last.end()
        if self._sharded:
            self.after = self.total()
            self._squares_left.append(self._in_shards())
        self._ended(self.passes.last.captured)

    def is_applied(self, made: Tensor) -> bool:
        """Tell whether the update takes just what was made, as the mean over ranks of their sketches [SIZE].

        Then what was thrown away is another model's loss, say; a loop may also keep what it zeroes, and apply the sum.
        """
        apart = torch.linalg.vector_norm(made - self._applied)
        return bool(apart <= _ROUNDED * torch.linalg.vector_norm(self._applied))

    def total(self) -> Tensor:
        """Return the sketch of this rank's gradient as it is now, comparable with `sketches`: float64 [SIZE]."""
        gradients = (parameter.grad for parameter, _ in self._signed)
        own = (gradient.to_local() if is_dtensor(gradient) else gradient for gradient in gradients)
        (sketches,) = stacks.measured(own, self._measure)
        self._applied = torch.tensor([float(sign) for _, sign in self._signed], dtype=torch.float64) @ sketches
        return self._applied

    def left(self) -> Tensor:
        """Return the L2 norms of this rank's shards after each backward pass: float64 [M], of none if nothing is."""
        return torch.tensor(self._squares_left[:MAX_MICRO_BATCHES], dtype=torch.float64).sqrt()
