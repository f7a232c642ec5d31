"""Judge two recorded runs by their folders: what `trainparity compare` does."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from trainparity.parity.constant_buffers import without_own_constants
from trainparity.parity.copied_weights import with_copied_weights
from trainparity.parity.detail import describe
from trainparity.parity.ends import at_the_end
from trainparity.parity.extent import extent
from trainparity.parity.left_out import left_out
from trainparity.parity.models import models, split_otherwise
from trainparity.parity.noise.analytic_floor import AnalyticFloor
from trainparity.parity.noise.floor import Floor, NoiseFloor
from trainparity.parity.noise.margin import check as check_margin
from trainparity.parity.noise.of_two_runs import of_two_runs
from trainparity.parity.of_commands import of_commands
from trainparity.parity.other_optimizers import held_by_others
from trainparity.parity.parted_models import Judged, behind_parted_models
from trainparity.parity.recorder import is_open
from trainparity.parity.recording.idle import without_steps
from trainparity.parity.recording.trace import ENDED, Trace, comparable, shared_steps
from trainparity.parity.together import together
from trainparity.parity.verdict import judge_traces, same_bits
from trainparity.parity.wrapped_models import with_plain_names
from trainparity.printable import one_line
from trainparity.records.base import RecordError, refuse_endless
from trainparity.records.detail import Detail
from trainparity.records.run import Status
from trainparity.records.verdict import Verdict


def compare_folders(
    left: Path,
    right: Path,
    twins: Sequence[Path] = (),
    *,
    margin: float = 16.0,
    names: tuple[str, str] | None = None,
) -> Verdict:
    """Judge the run in `right` against the one in `left`; `left/twins/*` and `twins` measure the noise floor.

    A folder or file that cannot be read gives `cannot judge`, with the reason; a run of the pipeline that did not
    train gives `failed` or `skipped`, and one run given twice, or its copy, `cannot judge`. `names` are what the
    verdict calls them: their folders, unless told otherwise.

    Raises:
        ValueError: the margin is out of range.
    """
    return _compare_models(left, right, twins, margin, names or _names(left, right))[0]


def compare_in_detail(
    left: Path, right: Path, twins: Sequence[Path] = (), *, margin: float = 16.0
) -> tuple[Verdict, dict[str, Detail]]:
    """Return what `compare_folders` and `describe_folders` return, reading each trace once."""
    verdict, pairs = _compare_models(left, right, twins, margin, _names(left, right))
    return verdict, {model: seen for model, pair in pairs.items() if pair and (seen := pair.described)}


def describe_folders(left: Path, right: Path, twins: Sequence[Path] = ()) -> dict[str, Detail]:
    """Return two recorded runs tensor by tensor, by model (the first has no name); what can't be read is left out.

    Args:
        left: The run that `right` is compared with.
        right: The other run.
        twins: Folders of twins besides those in `left/twins`.
    """
    details: dict[str, Detail] = {}
    for model, places in models(left, right, twins):
        with suppress(RecordError):  # which the verdict says
            if found := _load_pair(*places).described:
                details[model] = found
    return details


def _names(left: Path, right: Path) -> tuple[str, str]:
    """Return what two folders are called in lines of text, whatever is in their names."""
    return one_line(str(left)), one_line(str(right))


def _compare_models(
    left: Path, right: Path, twins: Sequence[Path], margin: float, names: tuple[str, str]
) -> tuple[Verdict, dict[str, "_Pair | None"]]:
    """Judge all models of two runs; return what was read of them too, by model.

    Raises:
        ValueError: the margin is out of range.
    """
    check_margin(margin)
    folders = left, right
    if (split := split_otherwise(left, right, names, margin)) is not None:
        return of_commands(split, folders), {}
    found = {model: _compare(*places, margin, names) for model, places in models(left, right, twins)}
    return of_commands(_together(found), folders), {model: pair for model, (_, pair) in found.items()}


def _together(found: Mapping[str, tuple[Verdict, "_Pair | None"]]) -> Verdict:
    if list(found) == [""]:
        return found[""][0]
    judged = {model: Judged(verdict, pair and (pair.left, pair.right)) for model, (verdict, pair) in found.items()}
    return together(behind_parted_models(held_by_others(judged)))


class _Pair(NamedTuple):
    """Two runs at the steps that both traced and all twins cover, and what measures their noise."""

    left: Trace
    right: Trace
    twins: Sequence[Trace]
    floor: Floor
    lengths: tuple[list[int], list[int]]
    """The steps that each traced."""
    common: tuple[Trace, Trace]
    """Both at all steps that both traced."""

    @property
    def described(self) -> Detail | None:
        """Both tensor by tensor; None where they can't be compared so."""
        return describe(self.left, self.right, self.floor, self.twins)


def _load_pair(left: Path, right: Path, twins: Sequence[Path]) -> _Pair:
    """Read two runs and their twins.

    Raises:
        RecordError: a trace is missing or damaged, or a twin is of another run.
    """
    ours, theirs, *found = (load(at) for at in (left, right, *_twins_of(left), *twins))
    ours, theirs, *found = with_plain_names(ours, theirs, *found)
    lengths = ours.layout.steps, theirs.layout.steps
    if ours.layout.window == theirs.layout.window:
        ours, theirs = shared_steps(ours, theirs)
    ours, theirs, *found = without_own_constants(ours, theirs, *found)
    common = ours, theirs
    if ours.layout.window == theirs.layout.window:
        ours, theirs, *found = shared_steps(ours, theirs, *found)
    ours, theirs, *found = with_copied_weights(ours, theirs, *found)
    return _Pair(ours, theirs, found, _floor(ours, found), lengths, common)


def _compare(
    left: Path, right: Path, twins: Sequence[Path], margin: float, names: tuple[str, str]
) -> tuple[Verdict, _Pair | None]:
    """Judge one model of two runs; return what was read of them too, None where that failed."""
    try:
        for folder in (left, right):
            if (status := _status(folder)) and status.status != "trained":
                reason = status.ending
                return Verdict(left=names[0], right=names[1], verdict=status.status, reason=reason, margin=margin), None
        if (missing := left_out(left, right, names, margin)) is not None:
            return missing, None
        pair = _load_pair(left, right, twins)
    except RecordError as error:
        return Verdict(left=names[0], right=names[1], verdict="cannot judge", reason=str(error), margin=margin), None
    verdict = judge_traces(pair.left, pair.right, pair.floor, margin, names)
    return _of_all_steps(verdict, pair) if verdict.exit_code == 0 else verdict, pair


def _of_all_steps(verdict: Verdict, pair: _Pair) -> Verdict:
    """Return a verdict that the runs are the same, or `cannot judge` where a step of theirs has no part in it.

    Beyond the steps that twins cover, equal bits alone say anything: they need no floor.
    """
    said = f"are {verdict.verdict}, and no more can be said"
    if pair.lengths[0] != pair.lengths[1]:
        of_each = f"{_brief(pair.lengths[0])} and {_brief(pair.lengths[1])}"
        ended = [
            f"; {name}: {trace.layout.settings[ENDED]}"
            for name, trace in zip((verdict.left, verdict.right), (pair.left, pair.right), strict=True)
            if ENDED in trace.layout.settings
        ]
        reason = f"steps: {of_each}: {verdict.steps_compared} common steps {said}{''.join(ended)}"
        return verdict.unclear(reason)
    steps, covered = (trace.layout.steps for trace in (pair.common[0], pair.left))
    floor = of_two_runs(pair.left, pair.right, pair.floor)
    if covered == steps:
        return at_the_end(verdict, pair.left, pair.right, pair.twins, floor)
    if same_bits(*pair.common):
        longer = verdict.model_copy(update=extent(*(trace.layout for trace in pair.common)))
        return at_the_end(longer, *pair.common, pair.twins, floor)
    reason = (
        f"twins cover {len(covered)} of {len(steps)} traced steps, to step {covered[-1]} of {steps[-1]}: these {said}"
    )
    advice = "record the twins over as many steps as the runs, with the same `interval` and `first`"
    return verdict.unclear(reason, advice=advice)


def _brief(steps: Sequence[int]) -> str:
    return f"{len(steps)} traced to step {steps[-1]}"


def _status(folder: Path) -> Status | None:
    """Return what became of a run of the pipeline; None for a run that a Recorder recorded."""
    path = folder / "status.json"
    refuse_endless(path)
    return Status.read(path) if path.exists() else None


def load(folder: Path) -> Trace:
    """Read the trace in a folder that a Recorder wrote, or in the state folder of a run of the pipeline.

    Raises:
        RecordError: there is none, or it is damaged.
    """
    if (folder / "trace.json").exists():
        return Trace.load(folder)
    if is_open(folder):
        raise RecordError(f"{folder}: its Recorder is still open: call its close(), or leave its `with` block, first")
    what = "holds no trace.json: the run was not recorded, or did not end" if folder.exists() else "no such folder"
    raise RecordError(f"{folder}: {without_steps(folder) or what}")


def _twins_of(folder: Path) -> list[Path]:
    """Return the folders of the twins that a run has beside it, finished ones."""
    return sorted(path.parent for path in (folder / "twins").glob("*/trace.json"))


def _floor(reference: Trace, twins: Sequence[Trace]) -> Floor:
    for twin in twins:
        if mismatch := comparable(reference.layout, twin.layout):
            raise RecordError(f"a twin is of another run: {mismatch}")
        if not twin.layout.twin:
            raise RecordError("a run given as floor is no twin; record it with TRAINPARITY_TWIN=1 (or 2, 3, ...)")
    return NoiseFloor(reference, twins) if twins else AnalyticFloor(reference)
