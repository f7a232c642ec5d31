"""The weights after a run's last step, where that is not traced: which step is the last one, nobody knows in it."""

import torch
from torch import Tensor, nn

from trainparity.parity.recording.hooks import Hook
from trainparity.parity.recording.integrity import END
from trainparity.parity.recording.kinds import is_dtensor
from trainparity.parity.recording.sketch import Sketcher
from trainparity.parity.recording.snapshot import Snapshot
from trainparity.parity.recording.structure import Structure


class End:
    """Looks at the weights when a run ends, or before the loop loads others, as its best ones.

    Unless the loop has changed them since the last step: then they are none that it has made.
    """

    def __init__(self, model: nn.Module, structure: Structure, sketch: Sketcher) -> None:
        self._model, self._structure, self._sketch = model, structure, sketch
        self._one = next((p for p in model.parameters() if p.requires_grad), torch.zeros(()))
        self._left: tuple[object, ...] | None = None
        """What the last step has left, where it was not traced."""
        self._arrays: dict[str, Tensor] = {}
        hook = Hook(lambda *_: self._look())
        self._handle = model.register_load_state_dict_pre_hook(hook)  # type: ignore[no-untyped-call]

    def made(self, *, traced: bool) -> None:
        """Note that a step was made."""
        self._left = None if traced else self._state()
        self._arrays = {}

    def arrays(self) -> dict[str, Tensor]:
        """Return the arrays `end/...` of a `Trace`; none where a traced step is the last, or ranks hold parts."""
        self._look()
        return self._arrays

    def close(self) -> None:
        """Remove the hook."""
        self._handle.remove()

    def _state(self) -> tuple[object, ...]:
        """Return what changes where the loop writes into the weights, or puts others in their place: of one for all."""
        where = 0 if is_dtensor(self._one) else self._one.data_ptr()
        return self._one._version, where, self._one.dtype

    def _look(self) -> None:
        if self._left is None or self._arrays or self._left != self._state() or self._structure.changed():
            return
        weights = [parameter.detach() for parameter in self._model.parameters()]
        if any(weight.is_meta or is_dtensor(weight) for weight in weights):
            return
        snapshot = Snapshot(self._sketch)
        try:
            snapshot.record("end", weights)
        except RuntimeError:  # the loop has freed their memory
            return
        self._arrays = {END + name: snapshot[END + name] for name in ("sketch", "digest")}
