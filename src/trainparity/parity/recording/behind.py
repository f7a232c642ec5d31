"""In which formats a model computes what it returns, as its autograd graph shows: casts that no hook sees.

A module, or a function between modules, may cast weights or what it is given, and return single precision again.
"""

from collections.abc import Iterable, Set
from typing import Any

from trainparity.parity.recording.formats import NumberFormat, number_format

EXACT = {
    f"{name}Backward{number}"
    for name in (
        "Abs", "Alias", "AsStrided", "Cat", "Clamp", "ClampMax", "ClampMin", "Clone", "ConstantPadNd", "Diagonal",
        "Flip", "Gather", "Index", "IndexSelect", "MaskedFill", "MaskedSelect", "Max", "Maximum", "Min", "Minimum",
        "Narrow", "Neg", "Permute", "Relu", "ReshapeAlias", "Roll", "Select", "Slice", "Split", "SplitWithSizes",
        "Squeeze", "Stack", "T", "Take", "TakeAlongDim", "Transpose", "Unbind", "UnsafeSplit", "UnsafeView",
        "Unsqueeze", "View", "Where",
    )
    for number in range(3)
}  # fmt: skip
"""Operations that return numbers which they are given, or their opposites, and so round nothing."""

MOST_NODES = 20_000
"""Operations that are looked at; of a graph with more nothing is said.

What Python has seen of a graph is freed by a call inside a call: the stack ends some 40,000 operations deep.
"""


def half_format(ends: Iterable[Any], parameters: Set[int]) -> NumberFormat | None:
    """Return the coarsest format of two bytes in which an operation of a model returns numbers; None: in none.

    Args:
        ends: What made the tensors that the model returned and the loss is made of, their `grad_fn`.
        parameters: The model's, by identity: what leads to none of them is another model's.
    """
    found: list[NumberFormat] = []
    leads: dict[Any, bool] = {}
    stack = [(node, False) for node in ends]
    while stack:
        node, entered = stack.pop()
        inside = [parent for parent, _ in node.next_functions if parent is not None]
        if entered:
            leads[node] = id(getattr(node, "variable", None)) in parameters or any(leads[parent] for parent in inside)
            if leads[node] and inside and node.name() not in EXACT:
                made = [each.dtype for each in getattr(node, "_input_metadata", ())]
                found += [number_format(dtype) for dtype in made if dtype.is_floating_point and dtype.itemsize == 2]
        elif node not in leads:
            leads[node] = False
            if len(leads) > MOST_NODES:
                return None
            stack.append((node, True))
            stack += [(parent, False) for parent in inside if parent not in leads]
    return max(found, key=lambda each: each.unit_roundoff, default=None)
