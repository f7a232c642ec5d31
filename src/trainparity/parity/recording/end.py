"""The weights after a run's last step, where that is not traced: which step is the last one, nobody knows in it."""

from collections.abc import Callable, Collection
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from trainparity.parity.recording import ranks
from trainparity.parity.recording.hooks import Hook
from trainparity.parity.recording.integrity import END
from trainparity.parity.recording.kinds import is_dtensor, is_scripted
from trainparity.parity.recording.sketch import Sketcher
from trainparity.parity.recording.snapshot import Snapshot
from trainparity.parity.recording.statistics import Statistics
from trainparity.parity.recording.structure import Structure
from trainparity.parity.recording.tensors import is_freed, is_strided
from trainparity.parity.recording.unrecorded import Unrecorded


class End:
    """Looks at the weights when a run ends, or before the loop loads others, as its best ones."""

    def __init__(
        self, model: nn.Module, structure: Structure, sketch: Sketcher, trained: Callable[[], Collection[int]]
    ) -> None:
        """`trained` returns what optimizers update, by identity."""
        self._model, self._structure, self._sketch, self._trained = model, structure, sketch, trained
        self._one = next((p for p in model.parameters() if p.requires_grad), torch.zeros(()))
        self._holder = next((part for part in model.modules() if self._is_in(part)), None)
        self._left: _State | None = None
        """What the last step has left, until it is looked at."""
        self._between = {_UNTOUCHED}
        """What the loop has done to the weights between two steps, as one that clamps them after each."""
        self.unrecorded = Unrecorded(model)
        self._statistics = Statistics(model, structure, sketch)
        self._written = False
        self._arrays: dict[str, Tensor] = {}
        self._own = {id(module) for module in model.modules()}
        self._loading: nn.Module | None = None
        """The part of the model that weights are being loaded into."""
        self._loaded, self._follow = set[int](), set[int]()
        """Parts that were loaded into since the last step, and between two steps: as averages, which follow weights."""
        self._handles = [
            handle
            for module in model.modules()
            if not is_scripted(module)
            for handle in (
                module.register_load_state_dict_pre_hook(Hook(self._before_load)),  # type: ignore[no-untyped-call]
                module.register_load_state_dict_post_hook(Hook(self._after_load)),  # type: ignore[no-untyped-call]
            )
        ]

    def begins(self) -> None:
        """Note that a step begins."""
        self.unrecorded.begins()
        self._follow |= self._loaded
        if self._left is not None:
            self._between.add(self._state().since(self._left))

    def made(self) -> None:
        """Note that a step was made."""
        self.unrecorded.made()
        self._statistics.made()
        self._left, self._written = self._state(), False
        self._arrays, self._loading, self._loaded = {}, None, set()

    def seen(self) -> tuple[dict[str, Tensor], bool]:
        """Return the arrays `end/...` of a `Trace`, and whether something has written into the weights at the end.

        A loop, as between no steps before, or an optimizer that is not recorded. Of weights that ranks hold parts of
        there are none.
        """
        self._look()
        return self._arrays | self._statistics.seen(), self._written

    def close(self) -> None:
        """Remove all hooks."""
        for handle in self._handles:
            handle.remove()
        self.unrecorded.close()

    def _state(self) -> "_State":
        where = self._one.data_ptr() if is_strided(self._one) and not is_dtensor(self._one) else 0
        return _State(self._one._version, where, self._one.dtype)

    def _is_in(self, part: nn.Module) -> bool:
        """Tell whether a part of the model holds that parameter still: a loop may have put a new one in its place."""
        return any(held is self._one for held in part._parameters.values())

    def _before_load(self, module: nn.Module, *_: Any) -> None:
        """Look before the loop loads other weights; not those of a copy of the model, which has its hooks."""
        if self._loading is None and id(module) in self._own:
            self._loading = module
            self._loaded.add(id(module))
            if not self._follows(module):
                self._look()
                self._statistics.before_load()

    def _after_load(self, module: nn.Module, *_: Any) -> None:
        """Look again at the end where the loop has loaded what was there, as a loop that writes a checkpoint may."""
        if module is not self._loading:
            return
        self._loading = None
        if self._follows(module):
            return
        self._statistics.after_load()
        if self._arrays and self._left is None:
            there = self._whole_weights()
            if there is not None and torch.equal(there[END + "digest"], self._arrays[END + "digest"]):
                self._left = self._state()

    def _follows(self, part: nn.Module) -> bool:
        """Tell whether the loop loads into a part between steps, too, and trains none of it: that is no other end.

        As a target network's, of which parameters may ask for gradients that no optimizer takes.
        """
        if id(part) not in self._follow:
            return False
        trained = self._trained()
        return not any(parameter.requires_grad and id(parameter) in trained for parameter in part.parameters())

    def _look(self) -> None:
        """Look, for the first time since the last step; again where there were further steps, which nobody records."""
        left, self._left = self._left, None
        more = self.unrecorded.more
        self.unrecorded.seen()
        if left is None and not more:
            return
        there = self._whole_weights()
        if there is not None:
            self._arrays = there
            written = left is not None and self._state().since(left) not in self._between
            replaced = self._holder is not None and not self._is_in(self._holder)
            self._written |= more or written or replaced

    def _whole_weights(self) -> dict[str, Tensor] | None:
        """Return what is recorded of the weights as they are; None on other ranks, and of what is not there whole."""
        if ranks.rank() or self._structure.changed():
            return None
        weights = [parameter.detach() for parameter in self._model.parameters()]
        if any(weight.is_meta or is_dtensor(weight) or is_freed(weight) or not weight.numel() for weight in weights):
            return None
        snapshot = Snapshot(self._sketch)
        snapshot.record("end", weights)
        return {END + name: snapshot[END + name] for name in ("sketch", "digest")}


class _Change(NamedTuple):
    """What has happened to a tensor: how often it was written into, and whether another one has taken its place."""

    writes: int
    moved: bool


_UNTOUCHED = _Change(0, moved=False)


class _State(NamedTuple):
    """What changes where a loop writes into the weights, or puts others in their place: of one for all."""

    version: int
    where: int
    dtype: torch.dtype

    def since(self, earlier: "_State") -> _Change:
        """Return what has happened since an earlier state."""
        return _Change(self.version - earlier.version, moved=self[1:] != earlier[1:])
