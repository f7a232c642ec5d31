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

    Names number the optimizers as they are made. Where both runs make as many, in another order or beside others that
    train nothing, models are known by their parameters, under the left run's names.
    """
    ours, theirs = _recorded(left), _recorded(right)
    names = list(dict.fromkeys([*ours, *theirs])) or [""]
    as_named: Mapping[str, str] = {name: name for name in names}
    in_doubt = len(ours) > 1 or ours != theirs  # else there is the first of both
    pairs = _matched(left, right, ours, theirs) if in_doubt and len(ours) == len(theirs) > 0 else as_named
    for name, other in pairs.items():
        yield name, (_of(left, name), _of(right, other), [_of(twin, name) for twin in twins])


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


def _matched(left: Path, right: Path, ours: Sequence[str], theirs: Sequence[str]) -> Mapping[str, str]:
    """Return the name of the right run's model for each of the left one's.

    They are told by their parameters; of one model by those that each optimizer updates, of several of one form, as two
    critics, by what these begin with; else by their order.
    """
    with suppress(RecordError):  # which is said of the model
        for told_by in (_parameters, _updated, _begun):
            known = {name: told_by(_of(left, name)) for name in ours}
            seen = {name: told_by(_of(right, name)) for name in theirs}
            pairs = [(name, other) for name in ours for other in theirs if seen[other] == known[name]]
            if len(pairs) == len(ours) == len({name for name, _ in pairs}) == len({other for _, other in pairs}):
                return dict(pairs)
    return dict(zip(ours, ours if set(ours) == set(theirs) else theirs, strict=True))


def _parameters(folder: Path) -> list[tuple[str, list[int]]]:
    """Return the names and shapes of a model's parameters, in their order."""
    idle = (folder / IDLE).exists() and not (folder / "trace.json").exists()
    layout = Idle.read(folder / IDLE) if idle else Layout.read(folder / "trace.json")
    return [*layout.parameters.items()]


def _updated(folder: Path) -> list[tuple[str, list[int]]]:
    """Return the names and shapes of those that its optimizer updates in any step."""
    trace = Trace.load(folder)
    held = trace.arrays["held"].any(0).tolist()
    return [named for named, is_ in zip(trace.layout.parameters.items(), held, strict=True) if is_]


def _begun(folder: Path) -> list[float]:
    """Return what the numbers of a model are known by before its first step."""
    begun: list[float] = Trace.load(folder).arrays["start/sketch"][0].flatten().tolist()
    return begun


def _held(run: Path, names: Sequence[str]) -> Counter[tuple[int, ...]]:
    """Return the shapes of all that a run's optimizers update, each as many times as it is there."""
    return Counter(tuple(shape) for name in names for _, shape in _updated(_of(run, name)))
