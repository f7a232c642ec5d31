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
    if _configuration(settings, name).device == "mps" and settings.runtime == "docker":
        print(f"{name}: on the host, as no container has Metal")
        environment = detect()
    else:
        environment = Environment.read(layout.environment(Path("runs")))
    runs, data, turn = Path("runs"), Path("data/prepared"), turns.take(name)
    status = run_configuration(settings, environment, name, runs=runs, data=data, position=turn)
    print(f"{name}: {status.outcome}")


def main(name: str) -> None:
    here_or_contained(lambda: train(name), lambda settings: image_of(_configuration(settings, name), settings))


def _configuration(settings: params.Params, name: str) -> params.Configuration:
    if name not in settings.configs:
        raise ParamsError(f"params.yaml: configs: {not_one_of(name, list(settings.configs))}")
    return settings.configs[name]
