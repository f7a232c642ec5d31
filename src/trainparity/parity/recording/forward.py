"""What one step's forward passes show: activations, samples, random numbers drawn, modules in evaluation mode."""

from collections.abc import Callable, Sequence, Set
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_map_only

from trainparity.parity.recording import stacks
from trainparity.parity.recording.apart import has_numbers, in_backward, unseen
from trainparity.parity.recording.autocast import Autocast
from trainparity.parity.recording.calls import Calls
from trainparity.parity.recording.evaluations import Evaluations
from trainparity.parity.recording.generators import random_state
from trainparity.parity.recording.groups import is_cut
from trainparity.parity.recording.identity import Samples
from trainparity.parity.recording.kinds import is_scripted
from trainparity.parity.recording.later import Later
from trainparity.parity.recording.leaves import Leaves, alias
from trainparity.parity.recording.names import INPUT, MODEL, OUTPUT, numbered
from trainparity.parity.recording.origins import Origins
from trainparity.parity.recording.outputs import Outputs
from trainparity.parity.recording.passes import Pass
from trainparity.parity.recording.perturb import Noise
from trainparity.parity.recording.seen import Seen
from trainparity.parity.recording.sketch import Sketcher
from trainparity.parity.recording.tensors import as_dense, tensors
from trainparity.parity.recording.time_first import TimeFirst, is_state
from trainparity.parity.recording.unwrap import named_parts
from trainparity.parity.recording.views import Views


class ForwardHooks:
    """Hooks on every module of a plain model; between `begin` and `read` they look at what passes."""

    def __init__(
        self, model: nn.Module, size: int, samples: Samples | None, *, whole: nn.Module | None, inside: bool
    ) -> None:
        """Attach to a model: to all of its modules (`inside`), and to `whole`, which is called in its place."""
        self._model = model
        self.origins = Origins(samples)
        self._evaluations = Evaluations(model)
        self._sketches = Later(stacks.sketches(Sketcher(size)))
        self.seen = Seen(size)
        self.outputs = Outputs(self._sketches, self.seen)
        self.modules = [(name or MODEL, module) for name, module in named_parts(model)]
        self._by_name = dict(self.modules)
        self._names = {id(module): name for name, module in self.modules if module is not model}
        self._begun = False
        self._orders: dict[int, TimeFirst] = {}
        """Of each module that the loop calls; `_order` is that of the pass under way."""
        self._order = TimeFirst(nn.Identity())
        self._turned: Pass | None = None
        """The pass that is under way, as it is if the model is given time first, where that is not known yet."""
        # Of a scripted part no call is seen: it is a step between those around it, as a function is.
        taking = [(name, module) for name, module in self.modules if not is_scripted(module)]
        inner = taking if inside and not is_cut(model) else []
        leaves = [(name, module) for name, module in inner if not list(module.children())]
        self._leaves = Leaves(leaves, self._looking, self._see, lambda: self.active and has_numbers())
        # After those: a twin's noise makes another tensor of an output, which the next part is given.
        self.calls = Calls(model, [module for _, module in taking], self, whole=whole, inside=inside)
        self.calls.hooks.add(*self._leaves.handles)
        self.active = False
        self.on_evaluated: Callable[[], None] | None = None
        """Called when the step's samples begin to pass again with other weights: nothing of that is recorded."""
        self.on_passed: Callable[[nn.Module], None] | None = None
        """Called when a pass of a part has ended, with gradients or without."""
        self.differentiable = False
        """Whether a gradient came through a pass that can be differentiated again."""
        self.autocast = Autocast(model)
        self.begin()

    def close(self) -> None:
        """Remove the hooks."""
        self._let_go()
        self.calls.close()
        self.origins.close()

    def begin(self, expected: Sequence[Tensor] = (), noise: Noise | None = None) -> None:
        """Look at a new step; `expected` gives the samples of each micro-batch, where the loop knows them.

        A twin's `noise` moves modules' outputs and their gradients.
        """
        self.origins.begin(expected)
        self._sketches.drop()
        self._leaves.noise = noise
        self._depth = 0
        self._may_have_ended = False
        self._passes: list[Pass] = []
        self._evaluations.begin()
        self.seen.next_micro_batch()
        self._blind_depth = 0
        self.evaluated_again = False
        """Whether samples of the step passed again after the loop had moved the weights."""
        if self.active and not self._begun:
            self.calls.join()
        self._begun = self._begun or self.active

    def backward_ended(self, *, captured: bool) -> None:
        """Note that a backward pass has ended, which had its gradients `captured` by the loop, or added.

        After the former the loss of the same micro-batch may go backward.
        """
        self._may_have_ended = captured
        if not captured:
            self._next_micro_batch()

    def _next_micro_batch(self) -> None:
        self._may_have_ended = False
        self._let_go()
        self.origins.next_micro_batch()
        self.seen.next_micro_batch()

    def _let_go(self) -> None:
        for one in self._passes:
            one.let_go()

    def end(self) -> None:
        """Look at nothing until the next step begins."""
        self.active = False
        self._let_go()
        self.autocast.end()

    def passes(self) -> list[Pass]:
        """Return the step's passes so far that belong to the training, with all that they have shown."""
        self._sketches.finish()
        return [one for one in self._passes if one.counts()]

    def _looking(self) -> bool:
        # Not while validating, and not when checkpointing runs a forward pass again inside backward.
        return self.active and torch.is_grad_enabled() and not in_backward() and has_numbers()

    def begins(self, module: nn.Module, inputs: tuple[Any, ...], keywords: dict[str, Any]) -> None:
        """Look at a call of the model, or of a module inside of it."""
        if self._looking():
            if self._depth == 0:
                if not self._begin_pass(module, inputs, keywords):
                    return
            else:  # `forward` itself may switch it on, as Accelerate's does
                self.autocast.see(module)
                self._order.look(module, inputs, self.origins.given, keywords)
                self._passes[-1].views.look(inputs)
            self._depth += 1
        elif self.active and not torch.is_grad_enabled() and self._depth == 0 and has_numbers():
            self._blind_depth += 1

    def ends(self, module: nn.Module, inputs: tuple[Any, ...], keywords: dict[str, Any], output: Any) -> Any:
        """Look at what it returns; return what it is to return in place of that, or None."""
        if self._looking() and self._depth:
            self._depth -= 1
            if self._depth == 0:
                return self._end_pass(module, output)
            self._passes[-1].views.made(output)
        elif self._blind_depth and not torch.is_grad_enabled() and has_numbers():
            self._blind_depth -= 1
            if self._blind_depth == 0:
                self.origins.add_aside(module, inputs, keywords, output)
                if self.on_passed:
                    self.on_passed(module)
        return None

    @unseen
    def _begin_pass(self, module: nn.Module, inputs: tuple[Any, ...], keywords: dict[str, Any]) -> bool:
        """Look at a pass from now on; False where the loop evaluates the step again, with other weights."""
        if self._may_have_ended:
            self._next_micro_batch()
        # A scripted part that was frozen has no mode: it evaluates.
        evaluating = torch.tensor([not getattr(module, "training", False) for _, module in self.modules])
        found = Pass(module.training, random_state(self._model), evaluating)
        found.frozen = not any(parameter.requires_grad for parameter in self._model.parameters())
        if not self._passes:
            self.autocast.begin()
        self._passes.append(found)
        self._order = self._orders.get(id(module)) or TimeFirst(module)
        self._orders[id(module)] = self._order
        earlier = self.origins.place(found, module, inputs, keywords, time_first=bool(self._order.known))
        if earlier is not None and earlier.handed_on:
            self.seen.hand_on(earlier)
        found.part = self._names.get(id(module), OUTPUT)
        for made in filter(None, map(self.origins.made, tensors((inputs, keywords)))):
            self.seen.hand_on_one(*made, to=found.part)
        of_own = found.source is not None and found.source in self._passes
        takes = (tensor.grad_fn is not None for tensor in tensors((inputs, keywords)))
        found.given_by_another = not of_own and any(takes)
        if self._evaluations.again(found, self._passes[:-1]):
            self._passes.pop()
            self.active, self.evaluated_again = False, True
            if self.on_evaluated:
                self.on_evaluated()
            return False
        self._turned = self.origins.turned(found) if self._order.known is None else None
        if not of_own:
            every = list(tensors((inputs, keywords)))
            given = list(map(as_dense, every[:_MOST_TENSORS]))
            found.views = Views(every)
            for one in filter(None, (found, self._turned)):
                self._see_inputs(one, given)
        return True

    def _see_inputs(self, found: Pass, given: list[Tensor]) -> None:
        for place, tensor in enumerate(given):
            name: str | None = numbered(INPUT, place)
            state = found.time_first and is_state(tensor, self.origins.given)
            if state or not found.see_tensor(str(name), tensor, self._sketches, None):
                name = found.see_whole(str(name), tensor, self._sketches)
            if name:
                self.seen.given(name, tensor)

    @unseen
    def _end_pass(self, module: nn.Module, output: Any) -> Any:
        """Look at what the loop is given; return it, as aliases where one may have been used inside for another."""
        if self._turned and self._order.decide(list(tensors(output)), self.origins.given):
            self._passes[-1], self._turned = self._turned, self._passes[-1]
        if self._turned:
            self._turned.let_go()
        self._turned, found = None, self._passes[-1]
        found.views.look(output)
        found.views.let_go()
        trained = [tensor.ndim for tensor in tensors(output) if tensor.requires_grad]
        if len(trained) > 1 and 0 not in trained:  # a model that makes the loss itself has used them for that
            output = tree_map_only(Tensor, alias, output)
        made = list(tensors(output))
        self.origins.add(found, made)
        found.see_draws(random_state(self._model))
        self.outputs.see(found, found.part, made[:_MOST_TENSORS], self._leaves.noise)
        self.seen.called(found)
        if self.on_passed:
            self.on_passed(module)
        return output

    def _see(self, name: str, output: Any) -> None:
        if (module := self._by_name.get(name)) is not None:
            self.autocast.returned(module, output)
        if self._passes and (seen := self._passes[-1].see(name, output, self._sketches, self._leaves.noise)):
            self.seen.note(seen)
        if self._turned and (seen := self._turned.see(name, output, self._sketches, None)):
            self.seen.note(seen)

    def sums(self, passes: Sequence[Pass], aside: Set[int]) -> Tensor:
        """Return the sums over passes of what modules returned and of its gradients: float64 [2, A, size].

        Those of backward passes `aside` don't count.
        """
        self.differentiable |= any(one.differentiable for one in self._passes)
        return self.seen.sums(passes, aside)


_MOST_TENSORS = 8
"""Tensors of what a model is given or returns that are looked at."""
