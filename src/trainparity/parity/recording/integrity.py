"""Whether a trace is whole: its arrays are those that the layout announces, and their numbers can be true."""

import hashlib
import json
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from trainparity.parity.recording.backward_passes import SIZE
from trainparity.parity.recording.seen import OUTPUTS
from trainparity.parity.recording.sketch import LEVELS

_SHAPES = {
    "gradient/sketch": "TPS", "gradient/norm": "TP", "gradient/digest": "TP",
    "gradient/levels": "TPL",
    "weight/sketch": "TPS", "weight/norm": "TP", "weight/digest": "TP",
    "buffer/sketch": "TBS", "buffer/norm": "TB", "buffer/digest": "TB",
    "start/sketch": "TPS", "activation/sketch": "TAS", "activation/numbers": "TA", "activation_gradient/sketch": "TAS",
    "applied/norm": "TP", "state/norm": "TP", "state/tensors": "TP", "held": "TP", "frozen": "TP",
    "optimizer_step": "T", "loss": "T", "gradient_norm": "T", "sequence": "T",
    "samples": "T", "aside": "T", "num_samples": "T", "sample_ids": "T*",
    "rank/weight": "TR", "rank/gradient": "TR", "rank/missing": "TRP", "rank/rows": "TR*", "rank/samples": "TR*",
    "rank/reached": "TR", "rank/loss": "TR",
    "rank/random_state": "TR", "rank/drew": "TR", "rank/backwards": "TR", "rank/held": "TR*", "rank/left": "TR*",
    "rank/micro": "TR*M", "rank/given": "TR*S", "rank/total": "TRM", "rank/after": "TRM", "rank/clip_norm": "TR",
    "made_elsewhere": "T", "judged_elsewhere": "T", "evaluating": "TN",
    "clip/calls": "T", "clip/cuts": "T", "clip/max_norm": "T", "clip/backwards": "T",
    "closure/again": "T", "closure/evaluations": "T", "closure/held": "T",
    "scale/value": "T", "scale/clipped": "T", "scale/left": "T",
}  # fmt: skip
"""The shape of every array.

T steps, P parameters, B buffers, A activations, N modules, R ranks, S and M sketches, L levels of size, O outputs.
"""

END = "end/"
"""What the names of arrays begin with that are of the run's end, and of no step."""

_LATER = {
    "state/zeros": "TP", "state/steps": "TP", "rank/given_by_output": "TR*OS",
    "written": "TP", "rank/weight_apart": "TP", "rank/gradient_apart": "TP", "loss/logged": "T",
}  # fmt: skip
"""Arrays that the traces of earlier versions lack.

Of a model that returns one tensor `given_by_output` is not recorded; two are where ranks disagree.
"""

_OF_END = {"end/sketch": "PS", "end/digest": "P"}

_BUFFERS_OF_END = {"end/buffer_sketch": "BS", "end/buffer_digest": "B"}
"""What the traces of earlier versions lack, and those of models without running statistics."""

_SETTING = "setting/"
_FLAGS = {
    "held", "frozen", "written", "rank/missing", "evaluating", "closure/again", "scale/clipped", "scale/left",
    "rank/weight_apart", "rank/gradient_apart", "loss/logged",
}  # fmt: skip
"""Arrays of truth values; hashes and counts are none, as all of them would be equal."""

_WHOLE_NUMBERS = {
    "activation/numbers",
    "gradient/digest", "weight/digest", "buffer/digest", "end/digest", "end/buffer_digest",
    "sequence", "samples", "aside", "num_samples",
    "sample_ids", "rank/weight",
    "rank/gradient", "rank/rows", "rank/samples", "rank/random_state", "rank/drew", "rank/backwards",
    "rank/reached",
    "made_elsewhere", "judged_elsewhere", "clip/calls", "clip/cuts", "clip/backwards", "closure/evaluations",
}  # fmt: skip


def checksum(layout: Mapping[str, Any], arrays: bytes) -> str:
    """Return the SHA-256 of a layout, as JSON values without its own checksum, and of the file of arrays."""
    values = {key: value for key, value in layout.items() if key != "checksum"}
    found = hashlib.sha256(json.dumps(values, sort_keys=True).encode())
    found.update(arrays)
    return found.hexdigest()


def flaw(layout: Any, arrays: Mapping[str, Tensor]) -> str | None:
    """Say which array is missing, of another shape or type than the layout announces, or cannot be true."""
    sizes = {
        "T": len(layout.steps), "P": len(layout.parameters), "B": len(layout.buffers), "A": len(layout.activations),
        "N": len(layout.modules), "R": layout.world_size, "S": layout.sketch_size, "M": SIZE,
        "L": LEVELS, "O": OUTPUTS,
    }  # fmt: skip
    if not layout.steps or layout.steps != sorted({step for step in layout.steps if step >= 0}):
        return "steps: there are none, or they are not in order"
    if not layout.parameters:
        return "parameters: there are none"
    if layout.groups and not (len(layout.groups) == layout.world_size > max(layout.groups) and min(layout.groups) >= 0):
        return f"groups: do not name a rank for each of {layout.world_size}"
    shapes = {**_SHAPES, **{name: "TP" for name in arrays if name.startswith(_SETTING)}}
    shapes |= {name: shape for name, shape in _LATER.items() if name in arrays}
    shapes |= _OF_END if END + "digest" in arrays else {}
    shapes |= _BUFFERS_OF_END if END + "buffer_digest" in arrays else {}
    if odd := sorted(shapes.keys() ^ arrays.keys()):
        return f"{odd[0]}: {'missing' if odd[0] in shapes else 'not known'}"
    for name, dimensions in shapes.items():
        shape = tuple(arrays[name].shape)
        expected = tuple(sizes.get(d, -1) for d in dimensions)
        if len(shape) != len(expected) or any(e not in (-1, s) for e, s in zip(expected, shape, strict=True)):
            return f"{name}: of shape {list(shape)}; {dimensions} is {['any' if e < 0 else e for e in expected]}"
        if not _fits(name, arrays[name]):
            return f"{name}: of type {arrays[name].dtype}"
    return _untrue(arrays)


def _fits(name: str, array: Tensor) -> bool:
    if name in _FLAGS:
        return array.dtype == torch.bool
    return array.dtype == torch.int64 if name in _WHOLE_NUMBERS else array.is_floating_point()


def _untrue(arrays: Mapping[str, Tensor]) -> str | None:
    """Say which norms cannot be those of their sketches, or what is no hash.

    A sketch of 64 numbers is hardly ever off by a factor of 4, in no two steps. In one of them it may be, where a few
    numbers of one size share a place: as those of two classes' weights, of which one's gradient is the other's negative
    for a single input.
    """
    if (arrays["rank/weight"] == 0).any():
        return "rank/weight: holds no hash"
    for kind in ("gradient", "weight", "buffer"):
        norms, sketches = arrays[f"{kind}/norm"], arrays[f"{kind}/sketch"]
        lengths, known = torch.linalg.vector_norm(sketches, dim=-1), norms.isfinite()
        if (known & ~lengths.isfinite()).any() or (norms < 0).any():
            return f"{kind}/norm: does not fit its sketch"
        steps = [torch.linalg.vector_norm(torch.where(known, each, 0.0), dim=-1) for each in (lengths, norms)]
        seen = torch.maximum(*steps) > 0
        apart = torch.maximum(*steps)[seen] > 4 * torch.minimum(*steps)[seen]
        if sketches.shape[-1] >= _MANY and len(apart) > 1 and apart.all():
            return f"{kind}/norm: does not fit its sketch"
    return None


_MANY = 32
"""Numbers of a sketch from which its length is a fair estimate of the norm."""
