"""What each stage depends on, computed: its settings, its code and, where it trains, the environment.

`probe` writes a file for each stage, `runs/plan/<stage>.json` or `runs/plan/train/<configuration>.json`, which is the
stage's dep in dvc.yaml. It holds no time, and no path of a machine but of what is read outside of the project: equal
plans are equal bytes on any machine.
"""

from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Any

from trainparity import params as parameters
from trainparity import workloads
from trainparity.closure import Closure, closure_of, nothing_known
from trainparity.environment import Environment
from trainparity.hashing import hash_of
from trainparity.launch.code import modules_of_run
from trainparity.params import COUNTERPART, Own, Params
from trainparity.pipeline.contents import content_of
from trainparity.pipeline.plan import Plan
from trainparity.pipeline.reading import remembered
from trainparity.records.known_answer import STUDY

_STAGES = "trainparity.stages"
_LOADER_CHILD = "trainparity.loading.child"


class Planner:
    """Makes the plans of one pipeline, whose folder is the working directory."""

    def __init__(self, params: Params, environment: Environment, code: "Code | None" = None) -> None:
        """Take the settings and this machine; `code` returns what modules reach, by default their imports."""
        self._params, self._environment = params, environment
        self._code: Code = code or partial(closure_of, known=nothing_known())
        # A deadline ends a stage or does not, and `scales` are laid over the rest already.
        self._whole = params.model_dump(mode="json", exclude={"scale", "scales", "deadline_s", "step_deadline_s"})
        self._stages = self._makers()

    def plans(self) -> dict[str, Plan]:
        """Return the plan of each stage that these settings have, by its path below `runs/plan` without `.json`."""
        return {name: make() for name, make in self._stages.items()}

    def plan(self, name: str) -> Plan | None:
        """Return one of these plans; None if there is no such stage."""
        return self._stages[name]() if name in self._stages else None

    @property
    def names(self) -> list[str]:
        """The stages that have a plan."""
        return list(self._stages)

    def _makers(self) -> dict[str, Callable[[], Plan]]:
        params = self._params
        found: dict[str, Callable[[], Plan]] = {
            "prepare": self._prepare,
            "reference": self._reference,
            "compare": self._compare,
            "report": lambda: self._plan("report", self._whole),
            "experiment": self._experiment,
        }
        found |= {f"train/{name}": partial(self._run, f"train/{name}", name, timed=True) for name in params.configs}
        found[COUNTERPART] = partial(self._run, COUNTERPART, COUNTERPART, timed=False)
        if curves := params.curves:
            found["curves"] = lambda: self._trains("curves", curves.references, self._some("curves"))
        if picture := params.picture:
            found["picture"] = lambda: self._trains("picture", [picture.reference], self._some("picture"))
        if params.loading:
            found["loading"] = self._loading
        if Path("claims.yaml").exists():
            found["claims"] = self._claims
        if STUDY.exists():
            found["known-answer"] = self._known_answer
        return found

    def _some(self, *sections: str) -> dict[str, Any]:
        return {name: self._whole[name] for name in sections}

    def _plan(self, stage: str, settings: dict[str, Any], code: Closure | None = None, *, trains: bool = False) -> Plan:
        """Make the plan of a stage; `code` is what it runs besides its module's imports."""
        module = stage.partition("/")[0].replace("-", "_")
        own = self._code([f"{_STAGES}.{module}"])
        whole = own | (code or Closure({}, {}))
        plan = Plan(
            settings=settings,
            files=dict(sorted(whole.files.items())),
            distributions=dict(sorted(whole.distributions.items())),
            environment=self._environment.fingerprint if trains else None,
        )
        return plan.completed(remembered(stage, plan.digest))

    def _workloads(self, references: Iterable[str]) -> Closure:
        return self._code({workloads.module_of(self._params.workload_of(name).name) for name in references})

    def _claims(self) -> Plan:
        settings = self._whole | {"claims": hash_of(Path("claims.yaml"))}
        return self._plan("claims", settings, self._workloads(self._params.references))

    def _compare(self) -> Plan:
        """Make the plan of the stage that judges: of the runs it needs to know no more than which to compare."""
        params = self._params
        settings = {
            "margin": params.parity.margin,
            "references": {name: params.reference_of(name) for name in params.configs},
            **self._some("pairs", "curves"),
        }
        return self._plan("compare", settings)

    def _experiment(self) -> Plan:
        """Make the plan of the stage that judges one configuration, and shows its figures."""
        parallel = self._params.parallel
        settings = {
            "parallel": parallel,
            "margin": self._params.parity.margin,
            "reference": self._params.reference_of(parallel) if parallel else None,
        }
        return self._plan("experiment", settings)

    def _reference(self) -> Plan:
        params = self._params
        settings = {
            "twins": params.parity.twins,
            "parity": params.parity.model_dump(mode="json", exclude={"margin", "twins"}),
            "needed": {name: params.reference_of(name) for name in (*params.configs, COUNTERPART)},
            **self._some("timing"),
        }
        return self._trains("reference", list(params.references), settings)

    def _prepare(self) -> Plan:
        dataset = self._params.dataset
        data = {path: content_of(Path(path)) for path in dataset.files_read}
        if not isinstance(dataset, Own):
            return self._plan("prepare", self._some("dataset"), Closure(data, {}))
        code = self._code([workloads.module_of(self._params.workload.name)])
        return self._plan("prepare", self._some("dataset", "workload"), code | Closure(data, {}))

    def _recipe(self, reference: str) -> dict[str, Any]:
        """Return what a reference, and every configuration compared with it, trains."""
        params = self._params
        sections = {"workload": params.workload_of(reference), "train": params.train_of(reference)}
        return {
            "accelerator": params.accelerator,
            "runtime": params.runtime,
            **{name: section.model_dump(mode="json") for name, section in sections.items()},
        }

    def _run(self, stage: str, name: str, *, timed: bool) -> Plan:
        """Make the plan of the stage of one configuration, or of the counterpart."""
        params, reference = self._params, self._params.reference_of(name)
        own = name in params.configs
        configuration = params.configs[name] if own else params.reference_configuration(reference)
        settings = {
            **self._recipe(reference),
            "configuration": configuration.model_dump(mode="json"),
            "parity": params.parity.model_dump(mode="json", exclude={"margin", "twins"}),
            "compared": name in {side for pair in params.pairs.values() for side in (pair.left, pair.right)},
            "timing": self._whole["timing"] if timed else None,
        }
        code = self._code(modules_of_run(params.workload_of(reference).name, configuration.strategy))
        return self._plan(stage, settings, code, trains=True)

    def _trains(self, stage: str, references: list[str], settings: dict[str, Any]) -> Plan:
        """Make the plan of a stage that trains entries of `references`."""
        recipes = {name: self._recipe(name) | {"reference": self._whole["references"][name]} for name in references}
        code = Closure({}, {})
        for name in references:
            code |= self._code(modules_of_run(self._params.workload_of(name).name, "single"))
        return self._plan(stage, settings | {"references": recipes}, code, trains=True)

    def _loading(self) -> Plan:
        first = next(iter(self._params.references))
        settings = self._some("loading", "timing") | self._recipe(first)
        return self._plan("loading", settings, self._code([_LOADER_CHILD]) | self._workloads([first]), trains=True)

    def _known_answer(self) -> Plan:
        """Make the plan of the stage that reproduces a published result with another pipeline's settings."""
        study = parameters.load(STUDY / "params.yaml")
        settings = {"runtime": self._params.runtime} | {
            path.name: hash_of(path) for path in sorted(STUDY.glob("*.yaml"))
        }
        code = self._code(modules_of_run(study.workload.name, "single"))
        for configuration in study.configs.values():
            code |= self._code(modules_of_run(study.workload.name, configuration.strategy))
        return self._plan("known-answer", settings, code, trains=True)


Code = Callable[[Iterable[str]], Closure]
"""From modules to all that importing them can come to run."""
