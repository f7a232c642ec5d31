"""The running statistics of normalisations when a run ends: a loop may make them anew after its last step."""

from torch import Tensor, nn

from trainparity.parity.recording import ranks
from trainparity.parity.recording.integrity import END
from trainparity.parity.recording.kinds import is_dtensor
from trainparity.parity.recording.sketch import Sketcher, digest
from trainparity.parity.recording.snapshot import Snapshot
from trainparity.parity.recording.structure import Structure
from trainparity.parity.recording.tensors import is_freed


class Statistics:
    """Looks at the running statistics of BatchNorm and InstanceNorm, and at no buffers that evaluation may change."""

    def __init__(self, model: nn.Module, structure: Structure, sketch: Sketcher) -> None:
        self._model, self._structure, self._sketch = model, structure, sketch
        self._made = False
        self._before: list[int] = []
        """Hashes of what was there before the loop began to load something."""
        self._loaded: dict[int, int] = {}
        """Hashes of what training has left, by the place of a buffer that the loop has loaded since the last step."""

    def made(self) -> None:
        """Note that a step was made."""
        self._made = True
        self._loaded.clear()

    def before_load(self) -> None:
        """Look before the loop loads something."""
        self._before = self._hashes()

    def after_load(self) -> None:
        """Note what the loop has loaded, unless it is what training has left, as where a loop puts that back."""
        left = dict(enumerate(self._before)) | self._loaded
        now = enumerate(self._hashes())
        self._loaded = {place: left.get(place, 0) for place, hashed in now if hashed != left.get(place, 0)}

    def seen(self) -> dict[str, Tensor]:
        """Return the arrays `end/buffer_...` of a `Trace`; none where no statistics are there, and on other ranks."""
        found = [None if place in self._loaded else buffer for place, buffer in enumerate(self._found())]
        if all(buffer is None for buffer in found):
            return {}
        snapshot = Snapshot(self._sketch)
        try:
            snapshot.record("buffer", found)
        except RuntimeError:  # the loop has freed their memory
            return {}
        return {f"{END}buffer_{name}": snapshot[f"buffer/{name}"] for name in ("sketch", "digest")}

    def _hashes(self) -> list[int]:
        try:
            return [0 if buffer is None else digest(buffer) for buffer in self._found()]
        except RuntimeError:
            return []

    def _found(self) -> list[Tensor | None]:
        """Return a tensor for each buffer of the trace that is such a statistic and is there; None for others."""
        own = self._own()
        # The names of a trace's buffers are those after the first step.
        if not own or not self._made or self._structure.changed():
            return []
        return [
            buffer if id(buffer) in own and _is_there(buffer) else None for buffer in self._structure.buffers().values()
        ]

    def _own(self) -> set[int]:
        """Return the identities of all running statistics, on the first rank, whose buffers are recorded."""
        if ranks.rank():
            return set()
        layers = (module for module in self._model.modules() if isinstance(module, nn.modules.batchnorm._NormBase))
        return {id(buffer) for layer in layers for buffer in (layer.running_mean, layer.running_var)}


def _is_there(buffer: Tensor) -> bool:
    """Tell whether this rank alone holds a buffer's numbers: others must take no part in reading them."""
    return not (buffer.is_meta or is_dtensor(buffer) or is_freed(buffer)) and buffer.numel() > 0
