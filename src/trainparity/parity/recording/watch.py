"""The evidence of one optimizer step, collected by hooks: the same for our training loop and anybody's."""

from collections.abc import Callable, Collection, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from trainparity.parity.recording import ranks
from trainparity.parity.recording.apart import in_backward, unseen
from trainparity.parity.recording.around_steps import AroundSteps
from trainparity.parity.recording.backward import BackwardHooks
from trainparity.parity.recording.clipping import ClippingHooks
from trainparity.parity.recording.closures import Closures, made_inside
from trainparity.parity.recording.collect import collect
from trainparity.parity.recording.corrections import made_in_double
from trainparity.parity.recording.end import End
from trainparity.parity.recording.facts import layout_of, often_written
from trainparity.parity.recording.formats import NumberFormat
from trainparity.parity.recording.forward import ForwardHooks
from trainparity.parity.recording.given import GivenGradients
from trainparity.parity.recording.gradients import Gradients
from trainparity.parity.recording.groups import groups
from trainparity.parity.recording.holders import Holders
from trainparity.parity.recording.hooks import is_inside_own_step
from trainparity.parity.recording.identity import Samples
from trainparity.parity.recording.joint import Joint
from trainparity.parity.recording.loss import LossHooks
from trainparity.parity.recording.meeting import Meeting, Place
from trainparity.parity.recording.perturb import Noise
from trainparity.parity.recording.seeds import derived_seed
from trainparity.parity.recording.sketch import Sketcher
from trainparity.parity.recording.snapshot import Snapshot
from trainparity.parity.recording.starts import record_settings, record_start
from trainparity.parity.recording.structure import Structure
from trainparity.parity.recording.tensors import shape_of
from trainparity.parity.recording.unrecorded import given_up, recorded
from trainparity.parity.recording.unwrap import hookable, is_compiled, plain_name, unwrap_model, unwrap_optimizer
from trainparity.parity.recording.written import Written


class StepWatch:
    """Between `begin` and `end` it watches one optimizer step; `end` returns the step's arrays of a `Trace`."""

    def __init__(
        self,
        model: nn.Module,
        optimizer: torch.optim.Optimizer,
        *,
        sketch_size: int,
        samples: Samples | None = None,
    ) -> None:
        """Attach to a model and its optimizer, wrapped or not. Every rank must make one."""
        self.wrapped, self.model, self.optimizer = model, unwrap_model(model), unwrap_optimizer(optimizer)
        self._sketch, self._trained_before = Sketcher(sketch_size), often_written(self.model)
        self.forward = ForwardHooks(
            self.model, sketch_size, samples, whole=hookable(model), inside=not is_compiled(model)
        )
        self.backward = BackwardHooks(self.model, self._updated, self._backward_ended)
        self._gradients = Gradients(self._parameters, lambda: self._holders, self.backward)
        self.forward.outputs.on_backward = self.backward.reached
        self.forward.on_evaluated = self.backward.evaluate_again
        self._written = Written(self._parameters, lambda: self._holders.members())
        self.forward.on_passed = self._written.passed
        self.clipping = ClippingHooks(lambda: self.backward.count, self._concerned_with)
        self.clipping.before, self.clipping.after = self._see_gradients_again, self._see_clipped
        self.structure = Structure(self.model)
        self.end_of_run = End(self.model, self.structure, self._sketch, lambda: self._holders.concern())
        self._loss = LossHooks(self.forward.origins.returned, self._parameters)
        self._closures = Closures(self._evaluate_again, self._see_evaluated)
        self._meeting = Meeting(self.wrapped)
        self._active = False
        self.given = GivenGradients()
        self._groups: Tensor | None = None
        self._corrected_in_double = True
        self.around = AroundSteps(self._updating)
        self._watch_steps_of(self.optimizer)

    def go_on_with(self, optimizer: torch.optim.Optimizer) -> None:
        """Watch the steps of another optimizer."""
        given_up(self.optimizer)
        self.around.release()
        self._watch_steps_of(unwrap_optimizer(optimizer))

    def _watch_steps_of(self, optimizer: torch.optim.Optimizer) -> None:
        self.optimizer = self.clipping.optimizer = optimizer
        recorded(optimizer)
        self._holders = Holders(optimizer, self._parameters)
        self.around.watch(optimizer)
        self.forward.calls.on_pass = self.around.end_of_several

    def _updated(self) -> set[int]:
        """Return the parameters, by identity, that any optimizer updates, recorded or not."""
        return self._holders.concern() | self.end_of_run.unrecorded.updated

    def _backward_ended(self, captured: bool) -> None:
        self.around.come_last()
        self._written.backward_ended()
        self.forward.backward_ended(captured=captured)

    def close(self) -> None:
        """Remove all hooks."""
        self.end_of_run.close()
        self.forward.close()
        self.backward.close()
        self.around.release()
        self._meeting.close()
        self.clipping.close()
        self._loss.close()

    def facts(self) -> dict[str, Any]:
        """Return what does not change from step to step, as fields of a `Layout`."""
        return {
            **layout_of(self.model, self.optimizer, self.forward.modules),
            "buffers": {name: shape_of(buffer) for name, buffer in self.structure.buffers().items()},
            "world_size": ranks.world_size(),
            "groups": self._groups.tolist() if self._groups is not None else [],
            "activations": [*self.forward.seen.names],
            "outputs": self.forward.seen.outputs,
            "given_outputs": self.forward.seen.first_outputs,
            "numbering": self.forward.seen.numbering,
            "uneven": len(self.forward.origins.lengths) > 1,
            "calls": dict(self.forward.seen.calls),
            "trained_before": self._trained_before,
            "corrected_in_double": self._corrected_in_double,
            "differentiable": self.forward.differentiable,
            "loss_reads": self._names_of(self._loss.reads),
            **self._loss.facts(),
        }

    def _names_of(self, parameters: Collection[int]) -> list[str]:
        """Return the names of parameters that are given by their identities: of none, as in most models, at once."""
        named = self.model.named_parameters() if parameters else ()
        return [plain_name(name) for name, parameter in named if id(parameter) in parameters]

    @unseen
    def begin(self, expected: Sequence[Tensor] = (), noise: Noise | None = None) -> None:
        """Watch the next step.

        Args:
            expected: The samples of each micro-batch, where the loop knows them.
            noise: A twin's, for what modules return and the gradients of it.
        """
        self._active = self.forward.active = self.backward.active = True
        self.forward.calls.hooks.on()
        self.backward.hooks.on()
        self.around.keep_gradients(True)
        self.given.begin(noise)
        self._meeting.begin()
        self.forward.begin(expected, noise)
        self.backward.begin(noise)
        self._arrays = Snapshot(self._sketch)
        self._gradients.begin(self._arrays, self._sketch)
        self._closures.begin()
        self._written.begin()
        self.around.come_last()
        self.clipping.begin()
        self._loss.begin()

    def rest(self) -> None:
        """Let a step pass that is not watched."""
        self.backward.hooks.off()
        if not self.around.end_of_several:  # which is called where the next forward pass begins
            self.forward.calls.hooks.off()

    @unseen
    def end(self) -> dict[str, Tensor]:
        """Return the watched step's arrays, complete on rank 0. Every rank must call it after the update.

        Raises:
            RanksPart: the ranks did not meet in this step.
        """
        again = self._meet(Place.END)
        self._meeting.expect_all()
        parameters, arrays = self._parameters(), self._arrays
        if "start/sketch" not in arrays:  # the update was skipped: the scaler found an overflow
            self.see_skipped()
            self._meeting.expect_all()
        if self.around.begins_late:
            record_settings(arrays, self.optimizer, parameters, self._holders)
        if not self._gradients.applied_seen:
            self._gradients.see_applied(again=bool(again))
        self._gradients.end()
        weights = arrays.record("weight", self._holders.tensors(parameters, parameters))
        self._written.ends(arrays["weight/sketch"])
        arrays.record("buffer", [*self.structure.buffers().values()])
        arrays["gradient_norm"] = torch.linalg.vector_norm(arrays["gradient/norm"])
        arrays |= self._of_each_rank(weights)
        if ranks.are_apart(arrays["rank/weight"]):
            arrays["rank/weight_apart"] = ranks.apart(arrays["weight/digest"])
        arrays["closure/evaluations"] = torch.tensor(self._closures.evaluations)
        arrays["closure/again"] = torch.tensor(self.forward.evaluated_again)
        arrays |= self.clipping.read()
        self._active = self.backward.active = False
        self.forward.end()
        self.around.keep_gradients(False)
        self.clipping.active = self._meeting.active = False
        self._loss.end()
        return arrays

    def format_unseen(self) -> NumberFormat | None:
        """Return the format that autograd's graph shows where no hook sees it, or gradients, where code is compiled."""
        blind = is_compiled(self.wrapped) or not self.forward.seen.names
        return self._loss.computes or (self.backward.arriving.format if blind else None)

    @property
    def parted(self) -> str:
        """Why the ranks are recorded together no longer; empty: they are."""
        return self._meeting.parted

    def when_exhausted(self, told: Callable[[str], None]) -> None:
        """Let something be told why when this rank, which has no more data, makes no more steps with the others."""
        self._meeting.on_exhausted = told

    def _of_each_rank(self, weights: int) -> dict[str, Tensor]:
        """Return what every rank has seen for itself; `weights` is a hash over the rank's own."""
        if self._groups is None:  # not before: only now all ranks and shards are surely there
            self._groups = groups(self.model)
        scale = self.clipping.scale or 1.0
        own = {
            "rank/weight": torch.tensor(derived_seed(weights, self._received)),
            "rank/clip_norm": torch.tensor(self.clipping.norm(), dtype=torch.float64),
            # Losses that are means over a rank's samples have gradients that DDP and FSDP average.
            "rank/loss": torch.tensor(self._loss.value / scale, dtype=torch.float64),
        }
        return collect(self.forward, self.backward, own, self._groups, scale)

    @unseen
    def _updating(self, optimizer: Any = None, args: tuple[Any, ...] = (), keywords: Any = None) -> Any:
        """Look at what the update starts from; return the step's arguments with the closure, if any, watched."""
        self.clipping.updated = True
        self.end_of_run.begins()
        if not self._active or (optimizer is not None and is_inside_own_step(optimizer)):
            return None
        if self.structure.changed() or (again := self._meet(Place.UPDATE)) is None:
            return None
        self._corrected_in_double &= made_in_double(self.optimizer)
        parameters = self._parameters()
        record_start(self._arrays, self.optimizer, parameters, self._holders)
        self._arrays["written"] = self._written.updates(self._arrays["start/sketch"])
        # What ranks send each other after the last update is seen here, where the next one begins.
        self._received = self._holders.received(parameters)
        self.given.see(parameters, made=self.backward.begun)
        keywords = keywords or {}
        if not made_inside(self.optimizer, args, keywords):
            self._gradients.see_applied(again=again)
            return None
        return self._closures.watched(args, keywords)

    def see_skipped(self) -> None:
        """Look at what an update that is not made would start from."""
        self._updating()

    def see_start_again(self) -> None:
        """Look again at the weights that an update starts from: a twin's were moved in the optimizer's closure."""
        if "start/sketch" in self._arrays:
            self._arrays.record_start(self._parameters())

    def _evaluate_again(self) -> None:
        self.forward.active = False
        self.backward.evaluate_again()

    @unseen
    def _see_evaluated(self) -> None:
        """Look at the gradients that a closure has left: the optimizer has them from there."""
        if self._active and (again := self._meet(Place.UPDATE)) is not None:
            self._gradients.see_applied(again=again)

    def _parameters(self) -> list[Tensor]:
        return self.structure.parameters()

    def _meet(self, place: Place) -> bool | None:
        """Meet the other ranks; tell whether gradients are to be read again. None: not all ranks are there."""
        told = self._meeting.meet(place, self._gradients.outdated, self._holders.outdated)
        if told is None:
            return None
        again, others = told
        if others:
            self._holders.renew()
        return again

    def _concerned_with(self, tensors: Sequence[Tensor]) -> bool:
        """Tell whether a call that clips some tensors clips what the optimizers update."""
        if not self._holders.known and self._meet(Place.CLIPPING) is None:
            return not set(map(id, self._parameters())).isdisjoint(map(id, tensors))
        return not self._holders.concern().isdisjoint(map(id, tensors))

    @property
    def _updated_within_backward(self) -> bool:
        """Whether a backward pass is under way in which each parameter may be updated when its gradient has come."""
        return isinstance(self.optimizer, Joint) and in_backward()

    @unseen
    def _see_gradients_again(self, clipped: Sequence[Tensor]) -> None:
        """Record the gradients before a call that clips: of several the first after the last backward pass."""
        if self._updated_within_backward:
            self._gradients.hold(clipped)
            return
        if self.structure.changed() or (again := self._meet(Place.CLIPPING)) is None:
            return
        self.given.see(self._parameters(), made=self.backward.begun)
        self._gradients.see(again=again)

    @unseen
    def _see_clipped(self) -> None:
        """Record what is left by a call that clips within the step, where that was seen to begin."""
        inside = self._gradients.applied_seen and self._closures.evaluations < 2 and not self._updated_within_backward
        if inside and not self.structure.changed() and self._meet(Place.CLIPPING) is not None:
            self._gradients.see_applied(again=False)
