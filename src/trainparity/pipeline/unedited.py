"""Nothing that a stage depends on may change between `probe`, which says what that is, and the stage's end."""

from pathlib import Path

from trainparity import params
from trainparity.closure import Closure, hashes_now
from trainparity.environment import Environment
from trainparity.errors import UserError
from trainparity.observed import UNKNOWN
from trainparity.pipeline.plan import Plan
from trainparity.pipeline.planner import Planner
from trainparity.pipeline.plans import PLANS, differences
from trainparity.pipeline.reading import as_now
from trainparity.records import layout


def check_unedited(stage: str, when: str) -> None:
    """Compare a stage's settings and files, as they are now, with its plan.

    Args:
        stage: As its plan is named; one without a plan depends on nothing that could be edited.
        when: Ends the sentence about what was edited.

    Raises:
        UserError: Something was edited; DVC would keep what the stage makes as made from what the plan names.
    """
    path = PLANS / f"{stage}.json"
    if not path.exists():
        return
    planned = Plan.read(path)
    found = params.load(Path("params.yaml")), Environment.read(layout.environment(PLANS.parent))
    now = Planner(*found, code=lambda modules: Closure({}, {})).plan(stage)  # while no file changes, no import does
    if now and (texts := list(differences(planned, _as_planned(now, planned)))):
        raise UserError(f"{stage.replace('/', '@')}: {'; '.join(texts)} {when}")


def _as_planned(now: Plan, planned: Plan) -> Plan:
    """Return what a plan names as it is now; what is not found, as what is installed in a container, as it was."""
    files = planned.files | hashes_now(planned.files) | now.files
    read = planned.also_read | as_now(name for name, digest in planned.also_read.items() if digest != UNKNOWN)
    return planned.model_copy(update={"settings": now.settings, "files": files, "also_read": read})
