"""Stage `train@<configuration>`: train one configuration, or record why it can't be."""

from pathlib import Path

from trainparity import params
from trainparity.environment import Environment, detect
from trainparity.launch.containers import here_or_contained, image_of
from trainparity.launch.runs import run_configuration
from trainparity.pipeline import turns
from trainparity.records import layout
from trainparity.validation import ParamsError, not_one_of


def train(name: str) -> None:
    settings = params.load(Path("params.yaml"))
    if settings.runtime == "docker" and settings.configs[name].device == "mps":
        print(f"{name}: on the host, as no container has Metal")
        environment = detect()
    else:
        environment = Environment.read(layout.environment(Path("runs")))
    runs, data, turn = Path("runs"), Path("data/prepared"), turns.take(name)
    status = run_configuration(settings, environment, name, runs=runs, data=data, position=turn)
    print(f"{name}: {status.outcome}")


def main(name: str) -> None:
    if name not in (configs := params.load(Path("params.yaml")).configs):
        raise ParamsError(f"params.yaml: configs: {not_one_of(name, list(configs))}")
    here_or_contained(lambda: train(name), lambda settings: image_of(settings.configs[name], settings))
