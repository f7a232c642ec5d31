"""A workload whose answers are checked: what a method returns that it may not is named, with what is allowed."""

import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from fnmatch import fnmatch
from typing import TYPE_CHECKING, Any, NoReturn
from weakref import WeakSet

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from trainparity.errors import UserError
from trainparity.workloads.base import Batch, Workload
from trainparity.workloads.randomness import SampleRandomness

if TYPE_CHECKING:
    from torch.distributed.tensor.parallel import ParallelStyle

_BUILT: WeakSet[nn.Module] = WeakSet()
"""The models of this process: one that has trained must not start another run."""


_LARGEST_COUNT = 2**53
"""Which a float64 still tells from the next one."""


class WorkloadError(UserError):
    """A method of a workload returned something else than it may; the message names the method, what and what else."""


class Checked:
    """The methods of a workload that a training asks, each of whose answers is checked."""

    def __init__(self, workload: Workload) -> None:
        self.plain, self.name = workload, type(workload).__name__
        self.counts_samples = not self._overrides("count")
        """Whether it divides the loss by the number of samples, which the sampler knows."""
        self.draws = self._overrides("draw")
        """Whether it has any randomness."""
        self.predicts = self._overrides("predict")
        """Whether what it trains is a classifier that can be scored."""

    def _overrides(self, method: str) -> bool:
        return getattr(type(self.plain), method) is not getattr(Workload, method)

    def _refuse(self, method: str, what: str, allowed: str) -> NoReturn:
        raise WorkloadError(f"`{method}` of {self.name} {what}; allowed: {allowed}")

    def build_model(self, sample: Batch) -> nn.Module:
        """Return a new model on the CPU, which has something to train."""
        model = self.plain.build_model(sample)
        allowed = "a new torch.nn.Module on the CPU, with parameters that are trained"
        if not isinstance(model, nn.Module):
            self._refuse("build_model", f"returned {kind(model)}", allowed)
        if model in _BUILT:
            self._refuse("build_model", "returned a model that it had returned before, and that has trained", allowed)
        _BUILT.add(model)
        if isinstance(model, torch.jit.ScriptModule):
            self._refuse("build_model", "returned a scripted module, whose steps can't be seen", allowed)
        for name, tensor in (*model.named_parameters(), *model.named_buffers()):
            if is_lazy(tensor):
                self._refuse("build_model", f"returned a model whose {name} has no shape yet: call it once", allowed)
            if tensor.device.type != "cpu":
                self._refuse("build_model", f"returned a model whose {name} is on the device {tensor.device}", allowed)
        if not any(parameter.requires_grad for parameter in model.parameters()):
            self._refuse("build_model", "returned a model without a parameter that is trained", allowed)
        return model

    def loss(self, model: nn.Module, batch: Batch) -> Tensor:
        """Return the loss summed over the batch's samples: one real number with a gradient."""
        loss = _asked(batch, self.plain.loss, model, batch)
        allowed = "the sum over the batch's samples, a scalar tensor that has a gradient"
        if not isinstance(loss, Tensor) or loss.numel() != 1 or not loss.is_floating_point():
            self._refuse("loss", f"returned {kind(loss)}", allowed)
        if not loss.requires_grad:
            self._refuse("loss", "returned a tensor without a gradient: detached, or made under no_grad", allowed)
        if not torch.is_grad_enabled():
            self._refuse("loss", "switched gradients off and left them off", "torch.no_grad() as a `with` block")
        return loss

    def count(self, batch: Batch) -> int:
        """Return what the summed loss is divided by, from 0."""
        found: Any = self.plain.count(batch)
        number = -1
        with suppress(TypeError, ValueError):  # of what stands for no integer
            number = operator.index(found)
        if not 0 <= number <= _LARGEST_COUNT:
            self._refuse("count", f"returned {_value(found)}", f"an integer from 0 to {_LARGEST_COUNT:,}")
        return number

    def draw(self, batch: Batch, randomness: SampleRandomness) -> Batch:
        """Return the batch's randomness, tensors by name."""
        drawn = _asked(batch, self.plain.draw, batch, randomness)
        allowed = "a dict of tensors by name, of which none is named `samples`"
        if not isinstance(drawn, Mapping):
            self._refuse("draw", f"returned {kind(drawn)}", allowed)
        for name, tensor in drawn.items():
            if not isinstance(tensor, Tensor) or not isinstance(name, str) or name == "samples":
                self._refuse("draw", f"returned {kind(tensor)} under the name {name!r}", allowed)
        return dict(drawn)

    def optimizer(self, model: nn.Module) -> torch.optim.Optimizer | None:
        """Return an optimizer of the model's parameters, or None."""
        made = self.plain.optimizer(model)
        allowed = "None, or a torch.optim.Optimizer over parameters of the model that it is given"
        if made is None:
            return None
        if not isinstance(made, torch.optim.Optimizer):
            self._refuse("optimizer", f"returned {kind(made)}", allowed)
        own = {id(parameter) for parameter in model.parameters()}
        if not any(id(parameter) in own for group in made.param_groups for parameter in group["params"]):
            self._refuse("optimizer", "returned an optimizer that holds no parameter of the model", allowed)
        return made

    def blocks(self, model: nn.Module) -> Sequence[nn.Module]:
        """Return parts of the model, each called by itself."""
        found: Any = self.plain.blocks(model)
        allowed = "a sequence of modules inside the model, each named once and with a forward of its own"
        if isinstance(found, nn.Module) or not hasattr(found, "__iter__"):
            self._refuse("blocks", f"returned {kind(found)}", allowed)
        blocks, inside = tuple(found), set(model.modules())
        for number, block in enumerate(blocks):
            if not isinstance(block, nn.Module):
                self._refuse("blocks", f"returned {kind(block)} among the modules", allowed)
            if block not in inside:
                self._refuse("blocks", f"returned a {type(block).__name__} that is no part of the model", allowed)
            if block in blocks[:number]:
                self._refuse("blocks", f"returned a {type(block).__name__} twice", allowed)
            if type(block).forward is nn.Module.forward:
                self._refuse("blocks", f"returned a {type(block).__name__}, which is never called itself", allowed)
        return blocks

    def tensor_parallel_plan(self, model: nn.Module) -> Mapping[str, "ParallelStyle"]:
        """Return the plan, of which each name is a module's."""
        from torch.distributed.tensor.parallel import ParallelStyle

        plan: Any = self.plain.tensor_parallel_plan(model)
        allowed = "a dict of ParallelStyle by the names of modules in the model"
        if not isinstance(plan, Mapping):
            self._refuse("tensor_parallel_plan", f"returned {kind(plan)}", allowed)
        for name, style in plan.items():
            if not isinstance(style, ParallelStyle):
                self._refuse("tensor_parallel_plan", f"returned {kind(style)} for {name!r}", allowed)
            # torch only warns of it, and splits nothing.
            if not isinstance(name, str) or not any(_named(model, name.split("."))):
                self._refuse("tensor_parallel_plan", f"names {name!r}, which the model does not have", allowed)
        return plan

    def predict(self, model: nn.Module, batch: Batch) -> Tensor:
        """Return class scores [B, classes]."""
        scores = _asked(batch, self.plain.predict, model, batch)
        if not isinstance(scores, Tensor) or scores.ndim != 2 or len(scores) != len(batch["samples"]):
            allowed = f"scores, a tensor [{len(batch['samples'])}, classes]"
            self._refuse("predict", f"returned {kind(scores)}", allowed)
        return scores

    def picture(self, model: nn.Module, samples: Batch) -> Tensor | None:
        """Return an image, or None."""
        picture = self.plain.picture(model, samples)
        if picture is None:
            return None
        shown = isinstance(picture, Tensor) and picture.dtype == torch.uint8 and picture.ndim == 3
        if not shown or picture.shape[0] not in (1, 3) or not picture.numel():
            self._refuse("picture", f"returned {kind(picture)}", "None, or an image: uint8 [1 or 3, height, width]")
        return picture


def _asked(batch: Batch, method: Callable[..., Any], *arguments: Any) -> Any:
    """Call a method; say which tensors the batch has where one is asked for that it lacks."""
    try:
        return method(*arguments)
    except KeyError as error:
        if error.args and error.args[0] not in batch:
            error.add_note(f"the batch has {', '.join(batch)}")
        raise


def kind(value: object) -> str:
    """Say what something is, for a sentence: `a tensor [4] of float32`, `the class Linear`, `None`, `a tuple`."""
    if value is None:
        return "None"
    if isinstance(value, Tensor):
        return f"a tensor {list(value.shape)} of {str(value.dtype).removeprefix('torch.')}"
    return f"the class {value.__name__}" if isinstance(value, type) else f"a value of type {type(value).__name__}"


def _value(value: object) -> str:
    return repr(value) if isinstance(value, int | float | str) else kind(value)


def _named(model: nn.Module, parts: Sequence[str]) -> Iterator[nn.Module]:
    """Yield the modules that a name stands for, as `parallelize_module` reads it: with wildcards between the dots."""
    if not parts or parts == [""]:
        yield model
        return
    for name, child in model.named_children():
        if fnmatch(name, parts[0]):
            yield from _named(child, parts[1:])
