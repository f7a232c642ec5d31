"""The images: a clone builds those that are not current, which docker/labels decides; other projects pull them."""

import os
import subprocess
from pathlib import Path
from typing import Literal

from docker.errors import APIError, ImageNotFound
from docker.models.images import Image

import docker
from trainparity import __version__
from trainparity.errors import UserError

Kind = Literal["cpu", "cuda"]

_SETTINGS: dict[Kind, str] = {"cpu": "CPU_IMAGE", "cuda": "CUDA_IMAGE"}
"""Environment variables that name another image, as in compose.yaml."""

_INPUTS = "org.trainparity.inputs"
"""The label with the hash of what an image's packages are made from."""


def clone() -> Path | None:
    """Return the clone that this is in, the nearest folder upwards with a compose.yaml of ours; None: there is none."""
    for folder in (Path.cwd(), *Path.cwd().parents):
        if (folder / "compose.yaml").exists() and (folder / "docker/labels").exists():
            return folder
    return None


def project() -> Path:
    """Return the folder that containers see: the clone; elsewhere the nearest upwards with a `.dvc`, or this one."""
    around = (folder for folder in (Path.cwd(), *Path.cwd().parents) if (folder / ".dvc").is_dir())
    return clone() or next(around, Path.cwd())


def name(kind: Kind) -> str:
    """Return an image's name: of a clone, that of the image built here; elsewhere the published one, or what is set."""
    if clone():
        return f"trainparity:{kind}"
    return os.environ.get(_SETTINGS[kind]) or f"ghcr.io/trainparity/trainparity:{__version__}-{kind}"


def inputs(kind: Kind) -> str:
    """Return the hash of what an image of this clone is made from: files, and the builder's settings."""
    lines = _run("docker/labels", kind, quiet=True).splitlines()
    return dict(line.split("=", 1) for line in lines)[_INPUTS]


def current(client: docker.DockerClient, kind: Kind) -> Image | None:
    """Return the image, which in a clone was built from what is there now; None if there is none.

    Another clone may give the image's name to its own, so containers are made from the id.
    """
    try:
        image = client.images.get(name(kind))
    except ImageNotFound:
        return None
    return image if clone() is None or made_from(image) == inputs(kind) else None


def made_from(image: Image) -> str | None:
    """Return the hash of what an image was made from; None where nothing says it."""
    found = image.labels.get(_INPUTS)
    return None if found is None else str(found)


def ensure(client: docker.DockerClient, kind: Kind) -> str:
    """Return the id of a current image; a clone builds one that is missing or stale, others pull it.

    Raises:
        UserError: it can't be had, or the engine has no NVIDIA GPU to give to a container of it.
    """
    if kind == "cuda" and not has_nvidia(client):
        raise UserError("this Docker engine has no NVIDIA runtime: install NVIDIA's container toolkit")
    found = current(client, kind)
    if found is None:
        build(kind) if clone() else _pull(client, kind)
        found = current(client, kind)
    if found is None:
        raise UserError(f"the image {name(kind)} was replaced meanwhile, by another clone: run this again")
    return str(found.id)


def _pull(client: docker.DockerClient, kind: Kind) -> None:
    print(f"pulling the image {name(kind)}", flush=True)
    try:
        client.images.pull(name(kind))
    except APIError as error:
        why = f"the image {name(kind)} is not here and can't be pulled ({error.explanation or error})"
        raise UserError(f"{why}; {_SETTINGS[kind]} names another, or set `runtime: host`") from None


def build(kind: Kind) -> None:
    """Build an image; the SDK has no BuildKit, so a script does it. Raises a `UserError` if it can't."""
    print(f"building the image {name(kind)}", flush=True)
    _run("docker/build", kind)


def has_nvidia(client: docker.DockerClient) -> bool:
    """Tell whether the engine can give a container NVIDIA GPUs."""
    return "nvidia" in client.info().get("Runtimes", {})


def _run(script: str, kind: Kind, *, quiet: bool = False) -> str:
    """Run a script of the clone; return what it prints if that is not to be seen."""
    folder = clone()
    if folder is None:
        raise UserError(f"no clone of trainparity is in {Path.cwd()} or above: images are built from one")
    command = [str(folder / script), kind]
    try:
        done = subprocess.run(command, stdout=subprocess.PIPE if quiet else None, text=True, check=False)
    except OSError as error:
        raise UserError(f"{script} can't be run: {error.strerror}; images are built from a whole clone") from None
    if done.returncode:
        raise UserError(f"{script} {kind} failed with exit code {done.returncode}: see above")
    return done.stdout or ""
