"""Nothing that a stage depends on may change between `probe`, which says what that is, and the stage's end."""

from pathlib import Path

from trainparity import params
from trainparity.environment import Environment
from trainparity.errors import UserError
from trainparity.pipeline.plan import Plan, Planner
from trainparity.pipeline.plans import PLANS, differences
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
    now = Planner(params.load(Path("params.yaml")), Environment.read(layout.environment(PLANS.parent))).plan(stage)
    if now and (texts := list(differences(_edited(planned, now), _edited(now, planned)))):
        raise UserError(f"{stage.replace('/', '@')}: {'; '.join(texts)} {when}")


def _edited(plan: Plan, other: Plan) -> Plan:
    """Return the part of a plan that only an edit changes: inside of a container other packages are installed."""
    files = {name: digest for name, digest in plan.files.items() if name in other.files}
    return plan.model_copy(update={"files": files, "distributions": {}, "environment": None})
