"""The images of a clone: which are current, and building those that are not. What decides is said by docker/labels."""

import subprocess
from pathlib import Path
from typing import Literal

from docker.errors import ImageNotFound

import docker
from trainparity.errors import UserError

Kind = Literal["cpu", "cuda"]

_INPUTS = "org.trainparity.inputs"
"""The label with the hash of what an image's packages are made from."""


def name(kind: Kind) -> str:
    """Return the name of the image that is built here."""
    return f"trainparity:{kind}"


def project() -> Path:
    """Return the clone: the nearest folder, from here upwards, with a compose.yaml.

    Raises:
        UserError: there is none.
    """
    for folder in (Path.cwd(), *Path.cwd().parents):
        if (folder / "compose.yaml").exists():
            return folder
    raise UserError(f"no compose.yaml in {Path.cwd()} or above: images are built from the project")


def inputs(kind: Kind) -> str:
    """Return the hash of what an image of this clone is made from: files, and the builder's settings."""
    lines = _run("docker/labels", kind, quiet=True).splitlines()
    return dict(line.split("=", 1) for line in lines)[_INPUTS]


def current(client: docker.DockerClient, kind: Kind) -> str | None:
    """Return the id of the image that was built from what is here now; None if there is none.

    Another clone may give the image's name to its own, so containers are made from the id.
    """
    try:
        image = client.images.get(name(kind))
    except ImageNotFound:
        return None
    return str(image.id) if image.labels.get(_INPUTS) == inputs(kind) else None


def ensure(client: docker.DockerClient, kind: Kind) -> str:
    """Return the id of a current image, which is built where it is missing or stale.

    Raises:
        UserError: it can't be built, or the engine has no NVIDIA GPU to give to a container of it.
    """
    if kind == "cuda" and not has_nvidia(client):
        raise UserError("this Docker engine has no NVIDIA runtime: install NVIDIA's container toolkit")
    found = current(client, kind)
    if found is None:
        build(kind)
        found = current(client, kind)
    if found is None:
        raise UserError(f"the image {name(kind)} was replaced while it was built, by another clone: run this again")
    return found


def build(kind: Kind) -> None:
    """Build an image; the SDK has no BuildKit, so a script does it. Raises a `UserError` if it can't."""
    print(f"building the image {name(kind)}", flush=True)
    _run("docker/build", kind)


def has_nvidia(client: docker.DockerClient) -> bool:
    """Tell whether the engine can give a container NVIDIA GPUs."""
    return "nvidia" in client.info().get("Runtimes", {})


def _run(script: str, kind: Kind, *, quiet: bool = False) -> str:
    """Run a script of the clone; return what it prints if that is not to be seen."""
    command = [str(project() / script), kind]
    try:
        done = subprocess.run(command, stdout=subprocess.PIPE if quiet else None, text=True, check=False)
    except OSError as error:
        raise UserError(f"{script} can't be run: {error.strerror}; images are built from a whole clone") from None
    if done.returncode:
        raise UserError(f"{script} {kind} failed with exit code {done.returncode}: see above")
    return done.stdout or ""
