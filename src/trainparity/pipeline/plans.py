"""The plans as files: written, compared with those of the last run, and cleared of what is gone from params.yaml."""

import hashlib
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from trainparity import validation
from trainparity.environment import Environment
from trainparity.params import COUNTERPART, Params
from trainparity.pipeline import cache
from trainparity.pipeline.plan import Plan
from trainparity.pipeline.planner import Planner
from trainparity.placement import Unavailable, place
from trainparity.records.base import RecordError

PLANS = Path("runs/plan")
LOCK = Path("dvc.lock")
"""Which contents each stage last ran with, and what it made of them."""


def write(plans: Mapping[str, Plan], folder: Path = PLANS) -> None:
    """Write each plan into its file; a file of no plan is removed."""
    for path in list(folder.rglob("*.json")):
        if path.relative_to(folder).with_suffix("").as_posix() not in plans:
            path.unlink()
    for name, plan in plans.items():
        plan.write(folder / f"{name}.json")


def make(params: Params, environment: Environment) -> dict[str, Plan]:
    """Return the plans of all stages."""
    return Planner(params, environment).plans()


def check_stages(plans: Mapping[str, Plan], path: Path = Path("dvc.yaml")) -> None:
    """Compare the stages of a pipeline with the plans.

    Raises:
        ParamsError: a stage has no plan, as params.yaml lacks the section that it is about.
    """
    needing = [name for name, one in _stages(path).items() if f"{PLANS}/{name}.json" in (one.get("deps") or ())]
    missing = [name for name in needing if name not in plans]
    if missing:
        texts = [
            f"{path}: stages.{name}: params.yaml has no section `{name}`; add it or remove the stage"
            for name in missing
        ]
        raise validation.ParamsError("\n".join(texts))


def remove_leftovers(params: Params, runs: Path = Path("runs")) -> list[str]:
    """Remove the outputs of configurations that params.yaml no longer has; return their names.

    `compare` and `report` depend on the folders that these lie in. DVC's cache still has them.
    """
    known, removed = {*params.configs, COUNTERPART}, set()
    for part in ("state", "report"):
        for path in (runs / part).glob("*/"):  # DVC may keep a .gitignore beside them
            if path.name not in known:
                shutil.rmtree(path)
                removed.add(path.name)
    return sorted(removed)


class Change(NamedTuple):
    """Something that is not as it was in the last run."""

    what: str
    stages: list[str]
    """Those that it makes run again, as DVC calls them."""

    @property
    def sentence(self) -> str:
        """What it is and does: `mine.py was edited: reference, train@ddp`."""
        return f"{self.what}: {', '.join(self.stages)}"


def changes(plans: Mapping[str, Plan]) -> list[Change]:
    """Return all changes since the last run.

    The plans are compared with those that the stages last ran with, which dvc.lock names and DVC's cache holds. Of a
    stage that never ran, or whose old plan is in no cache here, nothing is said.
    """
    old, stages = dict(_of_last_run()), dict[str, list[str]]()
    for name, plan in plans.items():
        for text in differences(old[name], plan) if name in old else ():
            stages.setdefault(text, []).append(name.replace("/", "@"))
    for path, names in _edited().items():
        if known := [name.replace("/", "@") for name in names if name in plans]:
            stages.setdefault(f"{path} was edited", []).extend(known)
    return [Change(what, names) for what, names in stages.items()]


def to_train(plans: Mapping[str, Plan], params: Params, environment: Environment) -> list[str]:
    """Return the configurations that this run of the pipeline will train: their plan, or what they start from, is new.

    Those that can't run here are left out; they are `skipped` at once.
    """
    old = dict(_of_last_run())
    new = {name for name, plan in plans.items() if old.get(name) != plan}
    everything = bool(new & {"prepare", "reference"})
    return [
        name
        for name, configuration in params.configs.items()
        if (everything or f"train/{name}" in new)
        and not isinstance(place(configuration, params.accelerator, environment), Unavailable)
    ]


def to_run(plans: Mapping[str, Plan], params: Params, path: Path = Path("dvc.yaml")) -> list[str]:
    """Return the stages after `probe` that this run of the whole pipeline will run, in their order, by their plans.

    Without a DVC file these are all. With one, a stage whose inputs come out as they were is restored instead: then
    there are fewer.
    """
    stages = _stages(path) if path.exists() else _WITHOUT_DVC
    order = [one for name in stages for one in (_trained(params) if name == "train" else [name]) if one in plans]
    old = dict(_of_last_run()) if path.exists() else {}
    edited = {name for names in _edited().values() for name in names} if path.exists() else set()
    found = [name for name in order if old.get(name) != plans[name] or name in edited]
    if _trains_anew(old.get("reference"), plans.get("reference")) or "prepare" in found or "reference" in edited:
        return order
    found += ["experiment"] if f"train/{params.parallel}" in found else []
    found += ["compare", "claims"] if any(name.startswith(_JUDGED) for name in found) else []
    found += ["report"] if found else []
    return [name for name in order if name in found]


_JUDGED = ("reference", "train/", "counterpart")
_WITHOUT_DVC = ("prepare", "reference", "train", "compare", "report")


def _trained(params: Params) -> list[str]:
    return [f"train/{name}" for name in params.configs]


def _trains_anew(old: Plan | None, new: Plan | None) -> bool:
    """Tell whether references change, and not only which configuration needs which."""
    if old is None or new is None:
        return True
    settings = [{**plan.settings, "needed": None} for plan in (old, new)]
    return settings[0] != settings[1] or old.model_copy(update={"settings": new.settings}) != new


def _of_last_run() -> Iterator[tuple[str, Plan]]:
    """Yield the plans that stages last ran with."""
    for stage in _stages(LOCK).values():
        for path, digest in _entries(stage, "deps"):
            if not path.is_relative_to(PLANS):
                continue
            try:
                yield path.relative_to(PLANS).with_suffix("").as_posix(), Plan.read(cache.file(digest))
            except RecordError:  # it went with a cleared cache
                continue


def _edited() -> dict[Path, list[str]]:
    """Return the files that stages depend on besides plans and outputs, and that are not as they were: one's own deps.

    Each with the stages by the names of their plans. Of folders among the deps DVC alone knows.
    """
    stages = _stages(LOCK)
    made = {path for stage in stages.values() for path, _ in _entries(stage, "outs")}
    found: dict[Path, list[str]] = {}
    for name, stage in stages.items():
        for path, digest in _entries(stage, "deps"):
            if not path.is_relative_to(PLANS) and not made & {path, *path.parents} and _differs(path, digest):
                found.setdefault(path, []).append(name.replace("@", "/"))
    return found


def _stages(path: Path) -> dict[str, dict[str, Any]]:
    """Return the stages in a file of DVC's by their names; none if it is empty or not there.

    Raises:
        ParamsError: it is no such file.
    """
    content = (validation.read_yaml(path) if path.exists() else None) or {}
    stages = (content.get("stages") or {}) if isinstance(content, dict) else None
    if not isinstance(stages, dict) or not all(isinstance(stage, dict) for stage in stages.values()):
        raise validation.ParamsError(f"{path}: DVC can't read this: `stages` must have the stages by their names")
    return stages


def _entries(stage: Mapping[str, Any], key: str) -> Iterator[tuple[Path, str]]:
    """Yield path and MD5 of each of a stage's `deps` or `outs` in dvc.lock."""
    for entry in stage.get(key) or ():
        if isinstance(entry, dict) and "path" in entry:  # else DVC itself refuses the file
            yield Path(entry["path"]), str(entry.get("md5") or "")


def _differs(path: Path, digest: str) -> bool:
    """Tell whether a file that is there has another MD5 than DVC noted."""
    if not digest or digest.endswith(".dir") or not path.is_file():
        return False
    with path.open("rb") as file:
        return hashlib.file_digest(file, "md5").hexdigest() != digest


def differences(old: Plan, new: Plan) -> Iterator[str]:
    """Yield what is another thing in one of two plans of a stage than in the other, each in a few words."""
    yield from _between(old.files, new.files, "{name} {how}")
    both = old.also_read.keys() & new.also_read.keys()  # other code, or other settings, may read other files
    for name in sorted(name for name in both if old.also_read[name] != new.also_read[name]):
        yield f"{name} was edited"
    yield from _between(old.distributions, new.distributions, "{name} is {new}, was {old}")
    if old.environment != new.environment:
        yield "the machine or image is another one"
    yield from _between(dict(_flat(old.settings)), dict(_flat(new.settings)), "{name}: {new}, was {old}")


def _between(old: Mapping[str, Any], new: Mapping[str, Any], text: str) -> Iterator[str]:
    for name in sorted({*old, *new}):
        before, after = old.get(name), new.get(name)
        if before != after:
            how = "is new" if name not in old else "is not used any more" if name not in new else "was edited"
            yield text.format(name=name, how=how, old=before, new=after)


def _flat(settings: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the settings by their paths, as `train.optimizer.lr`."""
    for key, value in settings.items():
        if isinstance(value, dict) and value:
            yield from _flat(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value
