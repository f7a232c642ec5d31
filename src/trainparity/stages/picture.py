"""Stage `picture`: train a model long enough to see something, and draw what it makes."""

from pathlib import Path

from trainparity import params
from trainparity.environment import Environment
from trainparity.errors import UserError
from trainparity.launch.containers import here_or_contained, image_of_engine
from trainparity.launch.runs import run_picture
from trainparity.pipeline.picture import draw
from trainparity.records import layout

RUNS, DATA, OUT = Path("runs"), Path("data/prepared"), Path("reports/picture.png")


def train() -> None:
    settings = params.load(Path("params.yaml"))
    picture = settings.picture
    assert picture is not None  # else there is no such stage
    settings = settings.with_reference(picture.reference, workload=picture.workload, train=picture.train)
    status = run_picture(settings, Environment.read(layout.environment(RUNS)), runs=layout.picture(RUNS), data=DATA)
    if status.status != "trained":
        raise UserError(f"picture: {status.outcome}")
    workload = settings.workload_of(picture.reference)
    if not draw(workload, layout.weights(layout.picture(RUNS), "picture"), DATA, OUT):
        raise UserError(f"picture: the workload {workload.name} has nothing to show; remove `picture` from params.yaml")
    print(f"picture: {OUT}")


def main() -> None:
    here_or_contained(train, image_of_engine)
