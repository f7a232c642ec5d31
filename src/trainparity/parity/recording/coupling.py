"""What the autograd graph between a model's outputs and a loss shows: operations that couple samples, and formats."""

from collections.abc import Collection, Iterable
from typing import Any, NamedTuple

from torch import Tensor, nn

from trainparity.parity.recording.behind import EXACT, MOST_NODES
from trainparity.parity.recording.formats import number_format

_PRODUCTS = {"MmBackward0", "AddmmBackward0", "MvBackward0", "AddmvBackward0", "DotBackward0", "EuclideanDistBackward0"}
"""Products of rows with one another, where both factors are made of what the model returned."""

_BATCHED = {"BmmBackward0", "BaddbmmBackward0", "CdistBackward0"}
"""The same for each of several matrices: with one matrix its rows may be samples, with more they belong to one."""

_REORDERED = {"FlipBackward0", "RollBackward0"}
"""Operations that put other samples beside each: as negatives that a batch has for one another."""

_CURVED = {
    "ExpBackward0", "Log10Backward0", "Log1PBackward0", "Log2Backward0", "LogBackward0", "PowBackward0", "PowBackward1",
    "ReciprocalBackward0", "RsqrtBackward0", "SigmoidBackward0", "SoftplusBackward0", "SqrtBackward0", "TanhBackward0",
}  # fmt: skip
"""Functions of one number that are no multiple of it."""

_CURVED_SUMS = {
    "DistBackward0", "LinalgVectorNormBackward0", "LogsumexpBackward0", "NormBackward0", "NormBackward1",
    "PdistBackward0", "StdBackward0", "VarBackward0",
}  # fmt: skip
"""Operations that make one number of many and are no sum of a function of each."""


class Seen(NamedTuple):
    """What the autograd graph of a loss shows."""

    losses: list[Tensor]
    """Those that are made of what the model returned."""
    coupled_by: str
    """The first operation found that couples the samples of a pass; empty: none."""
    sizes: list[int]
    """Those of its factors, where it is a product of matrices."""
    gathered: bool
    """Whether that is a product whose rows, or columns, are as many as all ranks' samples."""
    unit_roundoff: float
    """That of the coarsest format that an operation on the way to the loss returns."""
    reads: list[nn.Parameter]
    """Parameters that are not behind what the model returned."""
    reached: set[Any]
    """What made those of the model's outputs that it is made of; one that is only logged is not."""


_OVER_A_DIMENSION = {"LogSoftmaxBackward0", "SoftmaxBackward0", "StdBackward0", "VarBackward0"}
"""Operations that couple what lies along a dimension of theirs."""


def look(roots: Iterable[Tensor], ends: set[Any], of_all_ranks: Collection[int] = ()) -> Seen:
    """Walk the autograd graph from a loss to what the model returned.

    A product of two factors that are both made of that couples its rows, as in a contrastive loss; so does a curved
    function of one number that is summed over the batch, as the root of a mean square, or a quotient of such sums.

    Args:
        roots: What `backward` is called for.
        ends: What made the tensors that the model returned, their `grad_fn`.
        of_all_ranks: How many rows these have on all ranks together; none of a single rank.
    """
    begins = [tensor for tensor in roots if tensor.grad_fn is not None]
    made_of_outputs, over_samples, coupled_by, gathered, unit_roundoff = set(ends), set[Any](), "", False, 0.0
    sizes: list[int] = []
    nodes = _outermost_last([tensor.grad_fn for tensor in begins], ends)
    reached = {tensor.grad_fn for tensor in begins} & ends
    for node in nodes:
        reached |= ends.intersection(parent for parent, _ in node.next_functions)
        factors = [parent in made_of_outputs for parent, _ in node.next_functions]
        if any(factors):
            made_of_outputs.add(node)
            unit_roundoff = max(unit_roundoff, _unit_roundoff(node))
            summed = [parent in over_samples for parent, _ in node.next_functions]
            if any(summed) or _sums_over_samples(node):
                over_samples.add(node)
            if not coupled_by and (_couples(node, factors) or _couples_sums(node, summed)):
                coupled_by, sizes = str(node.name()), _sizes(node)
                gathered = bool(set(node._input_metadata[0].shape) & set(of_all_ranks))
    losses = [tensor for tensor in begins if tensor.grad_fn in made_of_outputs]
    leaves = (getattr(node, "variable", None) for node in nodes if losses)
    reads = [leaf for leaf in leaves if isinstance(leaf, nn.Parameter)]
    return Seen(losses, coupled_by, sizes, gathered, unit_roundoff, reads, reached)


def _sizes(node: Any) -> list[int]:
    """Return the sizes of a matrix product's factors, of which one counts samples; of others none are known."""
    kept = [getattr(node, f"_saved_{name}_sym_sizes", None) for name in ("self", "mat1", "mat2")]
    return [int(size) for sizes in kept if sizes is not None for size in sizes]


def _outermost_last(nodes: list[Any], ends: set[Any]) -> list[Any]:
    """Return the operations between a loss and what the model returned, each after those that it is made of."""
    order, seen, stack = list[Any](), set(ends), [(node, False) for node in nodes]
    while stack:
        node, entered = stack.pop()
        if entered:
            order.append(node)
        elif node not in seen:
            seen.add(node)
            if len(seen) > MOST_NODES:  # it is taken for uncoupled
                return []
            stack.append((node, True))
            stack += [(parent, False) for parent, _ in node.next_functions if parent is not None]
    return order


def _unit_roundoff(node: Any) -> float:
    """Return that of the format in which an operation returns numbers; 0 of one that computes none."""
    if node.name() in EXACT:
        return 0.0
    return max((number_format(made.dtype).unit_roundoff for made in node._input_metadata), default=0.0)


def _couples(node: Any, factors: list[bool]) -> bool:
    """Tell whether an operation mixes rows; `factors` tells which of its inputs are made of the model's outputs."""
    name, shape = node.name(), tuple(node._input_metadata[0].shape) if node._input_metadata else ()
    if name in _PRODUCTS or (name in _BATCHED and shape[:-2] in {(), (1,)}):
        return sum(factors) > 1
    if name in _OVER_A_DIMENSION and shape:
        return 0 in _dimensions(node)
    if name in _REORDERED:
        return 0 in {_signed(axis) % len(shape) for axis in node._saved_dims}
    if shape:
        return False
    if name in _CURVED | _CURVED_SUMS or (name == "DivBackward0" and factors[1]):
        return True
    return bool(name == "MulBackward0" and sum(factors) > 1)


def _couples_sums(node: Any, summed: list[bool]) -> bool:
    """Tell whether an operation is no sum of a function of each sample, as a quotient of sums over them for each class.

    Args:
        node: The operation.
        summed: Which of its inputs are sums over the samples.
    """
    name = node.name()
    if name == "DivBackward0":
        return len(summed) > 1 and summed[1]
    return any(summed) if name in _CURVED else name == "MulBackward0" and sum(summed) > 1


def _sums_over_samples(node: Any) -> bool:
    sizes = getattr(node, "_saved_self_sym_sizes", ())
    return node.name() in _SUMS and len(sizes) > 1 and 0 in {_signed(axis) % len(sizes) for axis in _dimensions(node)}


def _signed(axis: int) -> int:
    """Return a dimension as it was given: autograd shows those that count from the last as unsigned numbers."""
    return axis - (1 << 64) if axis >= 1 << 63 else axis


_SUMS = {"MeanBackward1", "SumBackward1"}


def _dimensions(node: Any) -> tuple[int, ...]:
    """Return the dimensions that a reduction or a softmax goes over; that of the samples is the first."""
    saved = getattr(node, "_saved_dim", None)
    return (saved,) if isinstance(saved, int) else tuple(saved or ())
