"""`trainparity doctor`: what this machine offers, and what can run on it."""

import json
from pathlib import Path
from typing import Annotated, NamedTuple

import typer
from rich.text import Text

from trainparity import params as parameters
from trainparity import starter
from trainparity.cli import answers
from trainparity.cli.app import command
from trainparity.environment import Environment, detect
from trainparity.pipeline.repair import repair
from trainparity.placement import Placement, Unavailable, place
from trainparity.records.numbers import NOTHING, counted
from trainparity.report import markdown
from trainparity.report.columns.column import Column
from trainparity.report.console import table
from trainparity.report.terminal import Terminal


class Offer(NamedTuple):
    """A configuration, and whether it can run here."""

    name: str
    placement: Placement | Unavailable

    @property
    def word(self) -> str:
        """`runs`, `emulated` or `cannot run`."""
        if isinstance(self.placement, Unavailable):
            return "cannot run"
        return "emulated" if self.placement.emulated else "runs"

    @property
    def device(self) -> str:
        """Its device, and the backend of its ranks if it has any."""
        if isinstance(self.placement, Unavailable):
            return NOTHING
        backend = f" ({self.placement.backend})" if self.placement.backend else ""
        return f"{self.placement.device}{backend}"

    @property
    def notes(self) -> list[str]:
        """Why it cannot run and what to do, or what is only imitated."""
        if isinstance(self.placement, Unavailable):
            return [f"{self.name}: {self.placement.reason}", f"{self.name}:   remedy: {self.placement.remedy}"]
        return [f"{self.name}: {self.placement.emulated}"] if self.placement.emulated else []


OFFERS: tuple[Column[Offer], ...] = (
    Column(heading="configuration", text=lambda offer: offer.name, numeric=False),
    Column(
        heading="here",
        text=lambda offer: offer.word,
        style=lambda offer: {"runs": "equivalent", "cannot run": "failed"}.get(offer.word, offer.word),
        numeric=False,
    ),
    Column(heading="device", text=lambda offer: offer.device, numeric=False),
)


@command
def doctor(
    path: Annotated[
        Path | None,
        typer.Argument(
            help="The params file; params.yaml, or where that is not here what `init` writes.", dir_okay=False
        ),
    ] = None,
    json_path: answers.JsonPath = None,
    markdown_path: answers.MarkdownPath = None,
    mend: Annotated[
        bool, typer.Option("--repair", help="Move a damaged lock record of DVC aside; nothing else.")
    ] = False,
) -> None:
    """Say what this machine offers, which configurations can run on it, why the rest can't and what to do."""
    if mend:
        print(repair(Path.cwd()) or "nothing to repair")
        return
    file = path or Path("params.yaml")
    own = path is not None or file.exists()
    params, environment = parameters.load(file if own else starter.SETTINGS), detect()
    answers.remove_earlier(json_path, markdown_path)
    found = [Offer(name, place(c, params.accelerator, environment)) for name, c in params.configs.items()]
    below = [note for offer in found for note in offer.notes]
    runs = sum(isinstance(offer.placement, Placement) for offer in found)
    said = "`trainparity repro` skips the others and says so" if own else "no params.yaml: those of `trainparity init`"
    below.append(f"{runs} of {len(found)} configurations can run here; {said}.")
    machine = _machine(environment)
    answers.give(
        json_path,
        lambda: json.dumps(_as_json(environment, found), indent=1) + "\n",
        markdown_path,
        lambda: markdown.listed(OFFERS, found, above=machine, below=below),
        lambda: _show(machine, found, below),
    )


def _show(machine: str, found: list[Offer], below: list[str]) -> None:
    console = Terminal(highlight=False, soft_wrap=True)
    console.print(Text(machine))
    console.print(table(OFFERS, found))
    for line in below:
        console.print(Text(line))


def _machine(environment: Environment) -> str:
    gpus = ", ".join(f"{a.name} ({a.memory_mib} MiB)" for a in environment.accelerators) or "no GPU"
    cuda = f"CUDA {environment.cuda}" if environment.cuda else "no CUDA"
    return (
        f"{environment.processor}, {counted(environment.cores, 'core')}, {gpus}; "
        f"{environment.system} {environment.machine}, Python {environment.python}, "
        f"torch {environment.torch} (built for {cuda}); "
        f"compiler: {environment.compiler or 'none'}; fingerprint {environment.fingerprint}"
    )


def _as_json(environment: Environment, found: list[Offer]) -> dict[str, object]:
    configurations = {
        offer.name: {"runs": isinstance(offer.placement, Placement), **vars(offer.placement)} for offer in found
    }
    facts = environment.model_dump(mode="json") | {"fingerprint": environment.fingerprint}
    return {"environment": facts, "configurations": configurations}
