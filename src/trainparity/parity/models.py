"""Which recordings of two runs are of one model: a run has one for each of its optimizers, as many as it makes."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from trainparity.parity.recording.idle import IDLE, Idle
from trainparity.parity.recording.trace import MODELS, Layout, Trace
from trainparity.records.base import RecordError
from trainparity.records.numbers import counted
from trainparity.records.verdict import Verdict

Places = tuple[Path, Path, Sequence[Path]]
"""The folders of one model: the left run's, the right one's and the twins'."""


def models(left: Path, right: Path, twins: Sequence[Path]) -> Iterator[tuple[str, Places]]:
    """Yield the folders of both runs and of the twins for each model that either run recorded; the first has no name.

    Models are known by their names, which number the optimizers as they are made. Where these are made in another order
    the models are known by their parameters, under the left run's names.
    """
    ours, theirs = _recorded(left), _recorded(right)
    names = list(dict.fromkeys([*ours, *theirs])) or [""]
    others = _in_another_order(left, right, names) if len(ours) == len(theirs) == len(names) > 1 else {}
    for name in names:
        yield name, (_of(left, name), _of(right, others.get(name, name)), [_of(twin, name) for twin in twins])


def split_otherwise(left: Path, right: Path, names: tuple[str, str], margin: float) -> Verdict | None:
    """Return the verdict on runs of which one updates by several optimizers what the other does by fewer; else None.

    Each is recorded by itself, with the part of the model that it updates.
    """
    runs = [_recorded(folder) for folder in (left, right)]
    if len(runs[0]) == len(runs[1]) or not all(runs):
        return None
    with suppress(RecordError):  # which is said of the model
        if _held(left, runs[0]) == _held(right, runs[1]):
            return _split(runs, names, margin)
    return None


def _split(runs: Sequence[Sequence[str]], names: tuple[str, str], margin: float) -> Verdict:
    counts = [f"{counted(len(run), 'model')} in {name}" for name, run in zip(names, runs, strict=True)]
    reason = f"the same parameters are recorded as {' and as '.join(counts)}, each with its optimizer"
    advice = "let both runs make the same optimizers, as by one that has a group of parameters for each of the others"
    return Verdict(left=names[0], right=names[1], verdict="cannot judge", reason=reason, advice=advice, margin=margin)


def _recorded(run: Path) -> list[str]:
    """Return the names of the models that a run recorded."""
    further = [place.parent.name for place in sorted((run / MODELS).glob("*/trace.json"))]
    return ["", *further] if (run / "trace.json").exists() else further


def _of(run: Path, name: str) -> Path:
    return run / MODELS / name if name else run


def _in_another_order(left: Path, right: Path, names: Sequence[str]) -> Mapping[str, str]:
    """Return under which names the right run has the left one's models; none where that is not told by parameters."""
    try:
        ours, theirs = ({name: _parameters(_of(run, name)) for name in names} for run in (left, right))
    except RecordError:
        return {}
    found = {name: [other for other in names if theirs[other] == ours[name]] for name in names}
    one_each = all(len(others) == 1 for others in found.values())
    return {name: others[0] for name, others in found.items()} if one_each else {}


def _parameters(folder: Path) -> list[tuple[str, list[int]]]:
    """Return the names and shapes of a model's parameters, in their order."""
    idle = (folder / IDLE).exists() and not (folder / "trace.json").exists()
    layout = Idle.read(folder / IDLE) if idle else Layout.read(folder / "trace.json")
    return [*layout.parameters.items()]


def _held(run: Path, names: Sequence[str]) -> Counter[tuple[int, ...]]:
    """Return the shapes of all that a run's optimizers update, each as many times as it is there."""
    shapes = Counter[tuple[int, ...]]()
    for name in names:
        trace = Trace.load(_of(run, name))
        held = trace.arrays["held"].any(0).tolist()
        shapes.update(tuple(shape) for shape, is_ in zip(trace.layout.parameters.values(), held, strict=True) if is_)
    return shapes
