"""One model under two names: by itself, and as the only part with weights of another, which makes its loss, say."""

from typing import Any

from trainparity.parity.recording.names import MODEL
from trainparity.parity.recording.trace import Layout, Trace


def with_plain_names(left: Trace, right: Trace, *twins: Trace) -> list[Trace]:
    """Return two runs, and twins of the left one, with one run's names where the other's have a prefix before them."""
    if prefix := _prefix(left.layout, right.layout):
        return [_without(prefix, left), right, *(_without(prefix, twin) for twin in twins)]
    if prefix := _prefix(right.layout, left.layout):
        return [left, _without(prefix, right), *twins]
    return [left, right, *twins]


def _prefix(wrapped: Layout, plain: Layout) -> str:
    """Return what stands before all names of the parameters and buffers of one run; empty: they are others, or equal.

    As `model.` of a LightningModule, beside a loop that calls the model by itself.
    """
    names, inner = list(wrapped.parameters), list(plain.parameters)
    if not inner or not names or not names[0].endswith(f".{inner[0]}"):
        return ""
    prefix = names[0].removesuffix(inner[0])
    same = names == [prefix + name for name in inner] and set(wrapped.buffers) == {prefix + n for n in plain.buffers}
    return prefix if same else ""


def _without(prefix: str, trace: Trace) -> Trace:
    """Return a trace of the inner model, without the modules around it."""
    layout, inner = trace.layout, prefix.removesuffix(".")
    named = {MODEL if name == inner else name.removeprefix(prefix): index
             for index, name in enumerate(layout.modules) if f"{name}.".startswith(prefix)}  # fmt: skip
    kinds = list(layout.modules.values())
    changed: dict[str, Any] = {
        field: {name.removeprefix(prefix): value for name, value in getattr(layout, field).items()}
        for field in ("parameters", "buffers", "stored_apart", "dropped")
    }
    for field in ("activations", "outputs", "modal"):
        changed[field] = [name.removeprefix(prefix) for name in getattr(layout, field)]
    changed["tied"] = {name.removeprefix(prefix): other.removeprefix(prefix) for name, other in layout.tied.items()}
    changed["modules"] = {name: kinds[index] for name, index in named.items()}
    arrays = trace.arrays | {"evaluating": trace.arrays["evaluating"][:, list(named.values())]}
    return Trace(layout.model_copy(update=changed), arrays)
