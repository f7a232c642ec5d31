"""Run a stage inside its image where params.yaml says so. Only that needs the Docker SDK, so it is imported there."""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from trainparity import extras
from trainparity import params as parameters
from trainparity.environment import IMAGE, Environment
from trainparity.errors import UserError
from trainparity.params import Configuration, Params
from trainparity.placement import Placement, place
from trainparity.records import layout
from trainparity.records.base import Record

if TYPE_CHECKING:
    from trainparity.launch.images import Kind


class Engine(Record):
    """What this machine's engine offers to a pipeline on the host, in `runs/engine.json`."""

    image: str | None
    """What the CPU image was made from; null if there is none that is current."""
    missing: str | None
    """Why no container can be started now."""


def look() -> Engine:
    """Ask the engine, if there is one, for a current CPU image."""
    if IMAGE.exists():
        return Engine(image=None, missing="this is a container already")
    if not extras.is_there("docker"):
        return Engine(image=None, missing="the package docker is not installed")
    from trainparity.launch import engine, images

    try:
        current = images.current(engine.connect(), "cpu")
    except UserError as error:
        return Engine(image=None, missing=str(error).partition(": ")[0])
    if current:
        return Engine(image=images.made_from(current) or str(current.id), missing=None)
    repair = "missing or stale; `make images` builds it" if images.clone() else "not here; `docker pull` brings it"
    return Engine(image=None, missing=f"the image {images.name('cpu')} is {repair}")


def image_of_engine(settings: Params) -> "Kind":
    """Return the image that sees all that the engine can give a container."""
    from trainparity.launch import engine, images

    return "cuda" if settings.accelerator in ("auto", "cuda") and images.has_nvidia(engine.connect()) else "cpu"


def image_of(configuration: Configuration, settings: Params) -> "Kind | None":
    """Return the image that a configuration runs in; None if it runs on Apple's GPU, which no container has."""
    if configuration.device == "mps":
        return None
    placement = place(configuration, settings.accelerator, Environment.read(layout.environment(Path("runs"))))
    return "cuda" if isinstance(placement, Placement) and placement.device == "cuda" else "cpu"


def here_or_contained(main: Callable[[], None], kind: "Callable[[Params], Kind | None]") -> None:
    """Run a stage here, or its command line inside an image where params.yaml says `runtime: docker`.

    Args:
        main: The stage.
        kind: Chooses the image; None for a stage that must stay on the host.

    Raises:
        UserError: no engine answers, the image can't be built, or the container was killed or overran its deadline.
        StoppedBySignal: this process was to end; the container has ended and is removed.
    """
    settings = parameters.load(Path("params.yaml"))
    chosen = None if settings.runtime == "host" or IMAGE.exists() else kind(settings)
    if chosen is None:
        main()
    else:
        from trainparity.launch.engine import run_contained

        run_contained(chosen, sys.argv[1:], deadline_s=settings.deadline_s)
