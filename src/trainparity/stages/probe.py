"""Stage `probe`: what this machine and image offer, and what each stage depends on."""

from pathlib import Path

from trainparity import environment, params
from trainparity.launch.containers import here_or_contained, image_of_engine, look
from trainparity.launch.warm import wake
from trainparity.pipeline import plans, schedule, turns
from trainparity.records import layout
from trainparity.records.numbers import counted

RUNS = Path("runs")


def probe() -> None:
    found, settings = environment.detect(), params.load(Path("params.yaml"))
    found.write(layout.environment(RUNS))
    gpus = ", ".join(a.name for a in found.accelerators) or "no GPU"
    print(f"{found.processor}, {counted(found.cores, 'core')}, {gpus}, torch {found.torch}: {found.fingerprint}")
    made = plans.make(settings, found)
    plans.check_stages(made)
    for change in plans.changes(made):
        print(change.sentence)
    turns.expect(training := plans.to_train(made, settings, found))
    schedule.expect(plans.to_run(made, settings))
    if training:
        wake()
    plans.write(made)
    for name in plans.remove_leftovers(settings):
        print(f"{name}: removed from {RUNS}, as params.yaml has no such configuration")


def main() -> None:
    here_or_contained(probe, image_of_engine)
    look().write(layout.engine(RUNS))
