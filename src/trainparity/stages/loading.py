"""Stage `loading`: time and memory of every combination of loader settings that params.yaml's `loading` asks for."""

from pathlib import Path

from trainparity import params
from trainparity.environment import Environment
from trainparity.errors import UserError
from trainparity.launch.containers import here_or_contained, image_of_engine
from trainparity.loading.run import measure_all
from trainparity.records import layout
from trainparity.records.loading import LoaderMeasurement


def measure() -> None:
    settings = params.load(Path("params.yaml"))
    if settings.loading is None:
        raise UserError("params.yaml: loading: missing; name what to combine, for example `loading: {workers: [0, 2]}`")
    environment = Environment.read(layout.environment(Path("runs")))
    paths = {"data": Path("data/prepared"), "work": Path(".trainparity/work/loading")}
    report = measure_all(settings, settings.loading, environment, **paths, progress=show)
    report.write(Path("runs/loading.json"))


def show(done: int, of: int, measured: LoaderMeasurement) -> None:
    print(f"[{done}/{of}] {measured.sentence}", flush=True)


def main() -> None:
    here_or_contained(measure, image_of_engine)
