"""Stage `counterpart`: the reference's training in the other runtime, in a container or on the host."""

from pathlib import Path

from trainparity import params
from trainparity.environment import IMAGE, detect
from trainparity.errors import UserError
from trainparity.launch.containers import Engine, image_of
from trainparity.launch.runs import run_counterpart, skip_counterpart
from trainparity.records import layout

INSIDE = "inside"
"""Argument of the command in the container."""


def main(where: str = "") -> None:
    settings = params.load(Path("params.yaml"))
    if not any(pair.right == params.COUNTERPART for pair in settings.pairs.values()):
        skip_counterpart(settings, "no pair of params.yaml compares it", runs=Path("runs"))
        return
    if where == INSIDE or (settings.runtime == "docker" and not IMAGE.exists()):
        status = run_counterpart(settings, detect(), runs=Path("runs"), data=Path("data/prepared"))
        print(f"counterpart: {status.outcome}")
        return
    try:
        in_container(settings)
    except UserError as error:  # the pipeline asked for no container; it continues without
        skip_counterpart(settings, str(error), runs=Path("runs"))
        print(f"counterpart: skipped: {error}")


def in_container(settings: params.Params) -> None:
    engine = Engine.read(layout.engine(Path("runs")))
    if engine.missing:
        raise UserError(engine.missing)
    configuration = settings.reference_configuration(settings.reference_of(params.COUNTERPART))
    from trainparity.launch.engine import run_contained

    kind = image_of(configuration, settings) or "cpu"
    run_contained(kind, ["counterpart", INSIDE], deadline_s=settings.deadline_s)
