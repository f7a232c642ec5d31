"""What one step's forward passes show: activations, samples, random numbers drawn, modules in evaluation mode."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves

from trainparity.parity.recording.formats import where_float64_is
from trainparity.parity.recording.groups import is_cut
from trainparity.parity.recording.sketch import Sketcher, mix, row_digests

Samples = Callable[[tuple[Any, ...], dict[str, Any]], Tensor]
"""From the arguments of the model's forward to the identities of its samples: int64 [B]."""

STAND_IN = torch.iinfo(torch.int64).min
"""The identity of a row that is no sample: its loss weighs nothing."""

INPUT = "(input)"
"""The name of what the model is given, among its activations."""


class ForwardHooks:
    """Hooks on every module of a plain model; between `begin` and `read` they look at what passes.

    An activation [B, ...] is summed over its samples, each with a random sign that belongs to the sample. That
    sum does not depend on how the batch was cut into micro-batches and over ranks, so it can be compared.
    """

    def __init__(self, model: nn.Module, size: int, samples: Samples | None, *, attach: bool) -> None:
        self._model, self._samples = model, samples
        self._sketch = Sketcher(size)
        self.names: list[str] = []
        """Modules whose output was seen, in the order of the first forward pass."""
        self.modules = [(name or "(model)", module) for name, module in model.named_modules()]
        leaves = [] if is_cut(model) else self.modules
        self._leaves = [(name, module) for name, module in leaves if not list(module.children())]
        self._handles: list[Any] = []
        if attach:
            self._attach()
        self.active = False
        self.on_enter: Callable[[torch.dtype | None], None] | None = None
        """Called once, before the model's next forward pass, with what autocast computes in."""
        self.on_backward: Callable[[], None] | None = None
        """Called at the start of each backward pass through what the model returned."""
        self.autocast: torch.dtype | None = None
        """What the last forward pass computed products in, if autocast chose it."""
        self._expected: list[Tensor] = []
        self.begin()

    def _attach(self) -> None:
        for _, module in self.modules:
            self._handles.append(module.register_forward_pre_hook(self._enter, with_kwargs=True))
            self._handles.append(module.register_forward_hook(self._leave, always_call=True))
        for name, module in self._leaves:

            def seen(module: nn.Module, inputs: Any, output: Any, name: str = name) -> None:
                if self._looking():
                    self._activation(name, output)

            self._handles.append(module.register_forward_hook(seen))

    @property
    def attached(self) -> bool:
        """Whether forward passes are seen: hooks inside a compiled model would break its graph."""
        return bool(self._handles)

    def close(self) -> None:
        """Remove the hooks."""
        for handle in self._handles:
            handle.remove()

    def begin(self, expected: Sequence[Tensor] = ()) -> None:
        """Look at a new step; `expected` gives the samples of each micro-batch, where the loop knows them."""
        self._expected = list(expected)
        self._micro_batch, self._taken, self._depth = 0, 0, 0
        self._signs: Tensor | None = None
        self._sums: dict[str, Tensor] = {}
        self.rows: list[int] = []
        self.samples: list[Tensor] = []
        self.random_state: int | None = None
        self.drew = 0
        self._before = 0
        self.evaluating: Tensor | None = None

    def next_micro_batch(self) -> None:
        """Note that a backward pass has ended."""
        self._micro_batch, self._taken = self._micro_batch + 1, 0

    def _looking(self) -> bool:
        # Not while validating, and not when checkpointing runs a forward pass again inside backward.
        return self.active and torch.is_grad_enabled() and torch._C._current_graph_task_id() == -1

    def _enter(self, module: nn.Module, inputs: tuple[Any, ...], keywords: dict[str, Any]) -> None:
        if not self._looking():
            return
        if self._depth == 0:
            self._enter_model(inputs, keywords)
        self._depth += 1

    def _leave(self, module: nn.Module, inputs: Any, output: Any) -> None:
        if not self._looking() or self._depth == 0:
            return
        self._depth -= 1
        if self._depth == 0:
            self._announce_backward(output)
            self.drew += random_state(self._model) != self._before

    def _announce_backward(self, output: Any) -> None:
        """Tell of the backward pass when it reaches what the model returned."""
        leaves = (leaf for leaf in tree_leaves(output) if isinstance(leaf, Tensor) and leaf.requires_grad)
        if self.on_backward and (leaf := next(leaves, None)) is not None:
            reached = self.on_backward
            leaf.register_hook(lambda gradient: reached())  # type: ignore[no-untyped-call]

    def _enter_model(self, inputs: tuple[Any, ...], keywords: dict[str, Any]) -> None:
        self._before = random_state(self._model)
        if self.random_state is None:
            self.random_state = self._before
            self.evaluating = torch.tensor([not module.training for _, module in self.modules])
            device = next((p.device.type for p in self._model.parameters()), "cpu")
            self.autocast = torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else None
            if self.on_enter:
                self.on_enter(self.autocast)
                self.on_enter = None
        contents = content_digests(inputs, keywords)
        if contents is None:
            self._signs = None
            return
        samples = self._identities(inputs, keywords, contents)
        real = samples != STAND_IN
        self.rows.append(int(real.sum()))
        self.samples.append(samples[real])
        self._signs = (1.0 - 2.0 * (mix(samples + 1) & 1).double()) * real
        self._activation(INPUT, (inputs, keywords))

    def _identities(self, inputs: tuple[Any, ...], keywords: dict[str, Any], contents: Tensor) -> Tensor:
        if self._micro_batch < len(self._expected) and self._taken >= len(self._expected[self._micro_batch]):
            self.next_micro_batch()  # its backward pass was not seen
        if self._micro_batch < len(self._expected):
            known = self._expected[self._micro_batch]
            part = known[self._taken : self._taken + len(contents)]
            self._taken += len(part)
            if len(part) == len(contents):
                return part
        if self._samples is not None:
            return self._samples(inputs, keywords).detach().flatten().to("cpu", torch.int64)
        return contents

    def _activation(self, name: str, output: Any) -> None:
        leaves = (leaf for leaf in tree_leaves(output) if isinstance(leaf, Tensor))
        tensor = next((leaf for leaf in leaves if leaf.is_floating_point() and leaf.ndim), None)
        if tensor is None or self._signs is None:
            return
        rows = where_float64_is(tensor.detach())
        signs = self._signs.to(rows.device)
        if len(rows) % len(signs):
            return
        signed = signs.repeat_interleave(len(rows) // len(signs)) @ rows.double().reshape(len(rows), -1)
        sketch = self._sketch(signed)
        self._sums[name] = self._sums.get(name, 0) + sketch
        if name not in self.names:
            self.names.append(name)

    def activations(self) -> Tensor:
        """Return the step's sums so far: float64 [A, size] in the order of `names`."""
        empty = torch.zeros(self._sketch.size, dtype=torch.float64)
        sums = [self._sums.get(name, empty) for name in self.names]
        return torch.stack(sums) if sums else torch.zeros(0, self._sketch.size, dtype=torch.float64)


def content_digests(inputs: tuple[Any, ...], keywords: dict[str, Any]) -> Tensor | None:
    """Hash each sample by the contents of the first tensor [B, ...] that the model is given: int64 [B].

    The first alone, as wrappers hand labels to the module that they call and loops without one don't. Tokens that
    an `attention_mask` leaves out don't count, so that padding on the right does not make another sample.
    """
    named = next((leaf for leaf in (*inputs, keywords) if isinstance(leaf, dict) and "input_ids" in leaf), {})
    leaves = [named["input_ids"]] if named else tree_leaves((inputs, keywords))
    tensor = next((leaf for leaf in leaves if isinstance(leaf, Tensor) and leaf.ndim), None)
    if tensor is None:
        return None
    mask = named.get("attention_mask")
    if isinstance(mask, Tensor) and mask.shape == tensor.shape:
        tensor = tensor * mask.to(tensor.dtype)
    return row_digests(tensor).cpu()


def random_state(model: nn.Module) -> int:
    """Hash the state of the generators that a forward pass can draw from."""
    state = [torch.get_rng_state()]
    device = next((p.device for p in model.parameters()), torch.device("cpu"))
    if device.type == "cuda":
        state.append(torch.cuda.get_rng_state(device))
    return int(sum(int(row_digests(part[None])) * (2 * i + 1) for i, part in enumerate(state)) % 2**62)
