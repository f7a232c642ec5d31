"""The names of what forward passes show: a module's, with what tells its calls and tensors apart."""

from collections.abc import Sequence

INPUT, OUTPUT = "(input)", "(output)"
"""The names of what the model is given and of what it returns, among its activations."""

MODEL = "(model)"
"""The name of the whole model among its modules."""

GIVEN = " (given)"
"""What a module is given whose output says nothing of it: dropout's has other zeros."""

_WHOLE = " (whole)"

_SUMS = " (sums)"

_CALL = " (call "


def of_call(module: str, number: int) -> str:
    """Name what a module returns: `relu`, then `relu (call 2)` where a forward pass calls it again."""
    return module if number == 1 else f"{module}{_CALL}{number})"


def module_of(name: str) -> str:
    """Return the module that an activation is named after."""
    return name.partition(_CALL)[0]


def numbered(name: str, place: int) -> str:
    """Name the tensors of one result or of the arguments by their place: `(output)`, `(output).1`, ..."""
    return f"{name}.{place}" if place else name


def of_whole(name: str) -> str:
    """Name a tensor whose rows are no samples."""
    return name + _WHOLE


def of_sums(name: str) -> str:
    """Name what the model returns that has no row for each sample: it is seen by sums over its rows."""
    return name + _SUMS


def is_of_sums(name: str) -> bool:
    """Tell whether what is recorded under a name are sums over rows that are no samples."""
    return name.endswith(_SUMS)


def depends_on_cut(name: str) -> bool:
    """Tell whether what is recorded under a name depends on how the batch was cut into passes."""
    return name.endswith(_WHOLE)


def made(names: Sequence[str]) -> list[str]:
    """Return what modules return, or the model, without what it is given."""
    return [name for name in names if not name.startswith(INPUT)]


def inside(names: Sequence[str]) -> list[str]:
    """Return what the model's modules return, without what the model itself is given and returns."""
    return [name for name in names if not name.startswith((INPUT, OUTPUT))]
