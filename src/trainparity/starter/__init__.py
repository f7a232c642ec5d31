"""The files that `trainparity init` writes into somebody's own project; they name no folder of this one."""

from pathlib import Path

from trainparity import schemas
from trainparity.errors import UserError
from trainparity.records.files import write_text

PARAMS, PIPELINE, WORKLOAD, SCHEMA = "params.yaml", "dvc.yaml", "workload.py", "params.schema.json"
_HERE = Path(__file__).parent
SETTINGS = _HERE / PARAMS
_PLOTS = "plots"
"""The templates of dvc.yaml's plots: here, and in the folder of DVC's own files."""
_IGNORED = "/.trainparity/\n/data/\n/runs/\n/reports/\n/metrics.json\n__pycache__/\n"
"""What a pipeline makes, for .gitignore."""


def write(folder: Path, *, dvc: bool, force: bool) -> list[Path]:
    """Write the settings, an example workload and the pipeline into a folder; return the files written.

    Args:
        folder: Made if it is not there.
        dvc: Write dvc.yaml too.
        force: Replace files of these names; a .gitignore is never replaced.

    Raises:
        UserError: a file is there already; nothing was written.
    """
    names = [PARAMS, SCHEMA, WORKLOAD, *([PIPELINE] if dvc else [])]
    there = [name for name in names if (folder / name).exists()]
    if there and not force:
        if there != [PARAMS, SCHEMA, WORKLOAD] or not dvc:
            raise UserError(f"{', '.join(str(folder / name) for name in there)}: there already; --force replaces them")
        names = [PIPELINE]  # of a project that began without it: the workload is its owner's by now
    folder.mkdir(parents=True, exist_ok=True)
    for name in names:
        source = schemas.HERE / schemas.PARAMS if name == SCHEMA else _HERE / name
        write_text(folder / name, source.read_text(encoding="utf-8"))
    written = [folder / name for name in names]
    if not (ignored := folder / ".gitignore").exists():
        ignored.write_text(_IGNORED, encoding="utf-8")
        written.append(ignored)
    return written


def write_templates(of_dvc: Path) -> None:
    """Write the templates of dvc.yaml's plots into the folder of DVC's own files; those that are there stay."""
    for source in sorted((_HERE / _PLOTS).glob("*.json")):
        if not (template := of_dvc / _PLOTS / source.name).exists():
            template.parent.mkdir(exist_ok=True)
            write_text(template, source.read_text(encoding="utf-8"))
