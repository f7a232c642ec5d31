"""What the runs left on disk, read once and typed; the rest of the report touches no files."""

from dataclasses import dataclass
from pathlib import Path

from trainparity.environment import Environment
from trainparity.params import Curves, Params, reference_name
from trainparity.records import layout
from trainparity.records.base import RecordError, read_csv
from trainparity.records.claims import ClaimReport
from trainparity.records.controls import ControlReport
from trainparity.records.curves import CurveReport, CurveResult
from trainparity.records.detail import DETAILS, Detail
from trainparity.records.known_answer import KnownAnswer
from trainparity.records.run import Status
from trainparity.records.timing import Timing
from trainparity.records.verdict import ParityReport

CONTROLS = Path("benchmarks/results/controls.json")
"""Written by `make controls`."""

CLAIMS = Path("claims.yaml")
"""Only a study has one."""


@dataclass(frozen=True, kw_only=True)
class Run:
    """One run; `timing` and `losses` are there only if it trained."""

    status: Status
    timing: Timing | None = None
    losses: tuple[tuple[int, float], ...] = ()
    """(step, loss) in the order of training."""


@dataclass(frozen=True, kw_only=True)
class Artifacts:
    """Everything that the report is made of."""

    params: Params
    environment: Environment
    configurations: dict[str, Run]
    references: dict[str, Run]
    """By entry of `references`."""
    parity: ParityReport
    details: dict[str, Detail]
    """By pair; of those that were judged tensor by tensor."""
    known_answer: KnownAnswer | None
    """None in a pipeline that does not compute one."""
    controls: ControlReport | None
    """None where nobody has recorded them."""
    claims: ClaimReport | None
    """None in a pipeline that is no study."""
    curves: dict[str, CurveResult]
    """By entry of `curves`; empty in a pipeline that compares no learning curves."""
    picture: bytes | None
    """A PNG file of what the trained model makes; None in a pipeline that draws none."""


def read(root: Path, params: Params) -> Artifacts:
    """Read the artifacts of everything that `params` names, and of nothing else.

    What a removed configuration, pair or section left on disk is not read.

    Raises:
        RecordError: a file is missing or damaged; the message names it.
    """
    runs, reports = root / "runs", root / "reports"
    known_answer, controls = layout.known_answer(runs) / "result.json", root / CONTROLS
    claims, picture = reports / "claims.json", reports / "picture.png"
    return Artifacts(
        params=params,
        environment=Environment.read(layout.environment(runs)),
        configurations={name: read_run(runs, name) for name in params.configs},
        references={name: read_run(runs, reference_name(name)) for name in params.references},
        parity=_read_parity(reports / "parity.json", params),
        details=_read_details(reports / DETAILS, params),
        known_answer=KnownAnswer.read(known_answer) if known_answer.exists() else None,
        controls=ControlReport.read(controls) if controls.exists() else None,
        claims=ClaimReport.read(claims) if (root / CLAIMS).exists() and claims.exists() else None,
        curves=_read_curves(reports / "curves.json", params.curves) if params.curves else {},
        picture=picture.read_bytes() if params.picture and picture.exists() else None,
    )


def _read_parity(path: Path, params: Params) -> ParityReport:
    """Read the verdicts on the pairs of `params`, in their order."""
    report = ParityReport.read(path)
    pairs = {name: report.pairs[name] for name in params.pairs if name in report.pairs}
    return report.model_copy(update={"pairs": pairs})


def _read_details(folder: Path, params: Params) -> dict[str, Detail]:
    """Read the details of those pairs of `params` that were judged tensor by tensor."""
    if not folder.is_dir():
        raise RecordError(f"{folder}: no such folder; `trainparity repro` makes it")
    paths = {name: folder / f"{name}.json" for name in params.pairs}
    return {name: Detail.read(path) for name, path in paths.items() if path.exists()}


def _read_curves(path: Path, curves: Curves) -> dict[str, CurveResult]:
    """Read the verdicts on the learning curves that `curves` names."""
    results = CurveReport.read(path).results
    return {name: results[name] for name in curves.pairs if name in results}


def read_run(runs: Path, name: str) -> Run:
    """Read one run; what an untrained run may have left from earlier is not looked at.

    Raises:
        RecordError: a file is missing or damaged; the message names it.
    """
    status = Status.read(layout.status(runs, name))
    if status.status != "trained":
        return Run(status=status)
    losses = read_csv(layout.losses(runs, name), lambda row: (int(row["step"]), float(row["loss"])))
    return Run(status=status, timing=Timing.read(layout.timing(runs, name)), losses=tuple(losses))
