"""Claims about runs whose records are written here: what is confirmed, what is not, and what can't be measured."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support import report_tree as tree
from trainparity.claims import schema
from trainparity.claims.evaluate import evaluate
from trainparity.claims.study import Study
from trainparity.data import datasets
from trainparity.data.manifest import Manifest
from trainparity.params import Digits, parse
from trainparity.records import layout
from trainparity.records.claims import ClaimResult
from trainparity.records.curves import CurveReport, CurveResult
from trainparity.records.evaluation import Evaluation
from trainparity.records.timing import Memory
from trainparity.records.verdict import ParityReport, Verdict
from trainparity.validation import ParamsError

HERE = Path("claims.yaml")
PARAMS: dict[str, Any] = {
    "scale": "laptop",
    "scales": {"laptop": {}, "article": {}},
    "workload": {"name": "ddpm"},
    "dataset": {"name": "digits"},
    "memory_limit_mib": 1000,
    "train": {"global_batch_size": 32, "holdout": 97, "optimizer": {"lr": 0.1}},
    "references": {"fp32": {}, "double": {"precision": "fp32", "train": {"global_batch_size": 64}}},
    "configs": {
        "compiled": {"strategy": "single", "device": "auto", "precision": "fp32", "compile": "default"},
        "dp": {"strategy": "data_parallel", "device": "auto", "precision": "fp32", "world_size": 2,
               "reference": "double"},
        "gpu": {"strategy": "single", "device": "cuda", "precision": "fp32"},
    },
    "pairs": {"compiled": {"left": "reference", "right": "compiled"}, "dp": {"left": "reference", "right": "dp"}},
}  # fmt: skip


class Tree:
    """A study's folder; a run trains in the milliseconds a step that are given for it."""

    def __init__(self, root: Path) -> None:
        self.root, self.runs = root, root / "runs"
        facts = {"dataset": "digits", "samples": 1697, "tensors": {}, "files": {}, "source": "here", "real": True}
        Manifest(**facts).write(root / "data/prepared/manifest.json")  # type: ignore[arg-type]
        self.run("reference-fp32", 10.0)
        self.run("reference-double", 16.0)
        self.run("compiled", 5.0, compile_s=2.0, graphs=3, graph_breaks=1, break_places=["model.py:3 in forward: why"])
        self.judge(
            compiled=tree.pair("compiled"),
            dp=tree.pair("dp", "different", cause="batchnorm-statistics"),
        )
        self.untrained("gpu", "skipped", reason="no CUDA GPU")

    def run(self, name: str, median: float, status: dict[str, Any] | None = None, **timing: Any) -> None:
        tree.status(name, **(status or {})).write(layout.status(self.runs, name))
        figures = {"step_ms": [median] * 20} | timing
        tree.timing(name, median, **figures).write(layout.timing(self.runs, name))

    def untrained(self, name: str, status: str, **facts: Any) -> None:
        found = tree.status(name, status=status, device=None, loss=None, **facts)
        found.write(layout.status(self.runs, name))

    def judge(self, **pairs: Verdict) -> None:
        ParityReport(margin=16, pairs=pairs).write(self.root / "reports/parity.json")

    def claim(self, measure: dict[str, Any], **claim: Any) -> ClaimResult:
        content = {"X": {"statement": "s", "published": "p", "measure": measure} | claim}
        study = Study(parse(PARAMS, Path("params.yaml")), self.root)
        return evaluate("study", schema.parse(content, HERE), study, tree.environment()).results[0]


@pytest.fixture
def study(tmp_path: Path) -> Tree:
    return Tree(tmp_path)


def test_a_ratio_of_steps(study: Tree) -> None:
    measure = {"name": "time-ratio", "run": "reference-fp32", "over": "compiled"}
    result = study.claim(measure, expect={"low": 1.5})
    assert result.value == pytest.approx(2.0) and result.verdict == "confirmed"
    assert result.hardware == "Example CPU @ 2.50GHz"
    assert study.claim(measure, expect={"low": 2.5}).verdict == "not confirmed"


def test_an_epoch_counts_the_steps_of_each_runs_own_batch(study: Tree) -> None:
    measure = {"name": "time-ratio", "run": "reference-fp32", "over": "reference-double", "of": "epoch"}
    # 1697 samples, 97 held out: 50 steps of 10 ms against 25 of 16 ms.
    assert study.claim(measure, expect={}).value == pytest.approx(500 / 400)
    seconds = study.claim({"name": "seconds", "run": "reference-double"}, expect={"high": 1})
    assert seconds.value == pytest.approx(0.4)


def test_compilation_is_part_of_a_training_and_pays_off_later(study: Tree) -> None:
    names = {"run": "reference-fp32", "over": "compiled"}
    short = study.claim({"name": "time-ratio", "of": "training", "epochs": 1, **names}, expect={"low": 1})
    long = study.claim({"name": "time-ratio", "of": "training", "epochs": 100, **names}, expect={"low": 1})
    assert (short.verdict, long.verdict) == ("not confirmed", "confirmed")
    even = study.claim({"name": "break-even", "run": "compiled", "over": "reference-fp32"}, expect={"low": 1})
    assert even.value == pytest.approx(8.0)  # 2 s over a quarter of a second an epoch


def test_a_run_that_is_no_faster_never_breaks_even(study: Tree) -> None:
    study.run("compiled", 11.0, compile_s=2.0)
    even = study.claim({"name": "break-even", "run": "compiled", "over": "reference-fp32"}, expect={"low": 1})
    assert even.measured == "never: a compiled epoch is no faster" and even.value is None
    assert even.verdict == "confirmed"


def test_emulated_skipped_failed_and_unsteady_runs_have_no_figure(study: Tree) -> None:
    measure = {"name": "time-ratio", "run": "reference-fp32", "over": "dp"}
    study.run("dp", 3.0, status={"emulated": "CPU replicas"})
    assert study.claim(measure, expect={}).reason == "dp is emulated here: CPU replicas"
    study.untrained("dp", "failed", reason="rank 0: boom")
    assert study.claim(measure, expect={}).reason == "dp failed: rank 0: boom"
    study.run("dp", 3.0, step_ms=[1.0] * 10 + [9.0] * 10)
    result = study.claim(measure, expect={})
    assert result.verdict == "not measurable here" and "scatter" in str(result.reason)
    assert "no CUDA GPU" in str(study.claim(measure | {"over": "gpu"}, expect={}).reason)


def test_what_is_not_the_same_training_is_said_beside_its_time(study: Tree) -> None:
    study.run("dp", 3.0)
    result = study.claim({"name": "time-ratio", "run": "reference-fp32", "over": "dp"}, expect={})
    assert result.remark == "dp is not the same training (batchnorm-statistics)"


@pytest.mark.parametrize(
    ("needs", "reason"),
    [
        ({"device": "cuda"}, "needs 1 CUDA GPU; this machine has 0"),
        ({"device": "cuda", "devices": 2}, "needs 2 CUDA GPUs; this machine has 0"),
        ({"device": "mps"}, "needs 1 Apple GPU; this machine has 0"),
    ],
)
def test_hardware_that_is_not_there_is_the_reason(study: Tree, needs: dict[str, Any], reason: str) -> None:
    result = study.claim({"name": "memory", "run": "gpu"}, needs=needs, expect={})
    assert (result.verdict, result.reason, result.measured) == ("not measurable here", reason, None)


def test_at_another_scale_a_ratio_says_so_and_an_absolute_figure_proves_nothing(study: Tree) -> None:
    scale, said = {"scale": "article"}, "measured at laptop scale, the claim is about article scale"
    ratio = study.claim(
        {"name": "time-ratio", "run": "reference-fp32", "over": "compiled"}, expect={"low": 1}, needs=scale
    )
    assert (ratio.verdict, ratio.remark) == ("confirmed", said)
    seconds = study.claim({"name": "seconds", "run": "compiled"}, expect={"low": 0}, needs=scale)
    assert (seconds.verdict, seconds.reason) == ("not measurable here", said)
    assert seconds.measured == "0.250 s / epoch"


def test_one_gain_over_another(study: Tree) -> None:
    measure = {"name": "gain-ratio", "small": ["reference-fp32", "compiled"], "large": ["reference-fp32", "dp"]}
    study.run("dp", 5.0)  # half the steps an epoch, too
    result = study.claim(measure, expect={"high": 1})
    assert result.value == pytest.approx(2 / 4) and result.verdict == "confirmed"


def test_memory_compilation_and_graph_breaks(study: Tree) -> None:
    study.run("compiled", 5.0, memory=Memory(host_mib=900, device_allocated_mib=306.25), compile_s=2.0,
              graphs=3, graph_breaks=1, break_places=["model.py:3 in forward: why"])  # fmt: skip
    ratio = study.claim({"name": "memory-ratio", "run": "compiled", "over": "reference-fp32"}, expect={"high": 1})
    assert ratio.measured == "-50.0 % (612 -> 306 MiB)" and ratio.verdict == "confirmed"
    assert study.claim({"name": "memory", "run": "compiled"}, expect={}).value == 306.25
    assert study.claim({"name": "compilation", "run": "compiled"}, expect={}).value == 2.0
    breaks = study.claim({"name": "graph-breaks", "run": "compiled"}, expect={"high": 0})
    assert breaks.measured == "1 in 3 graphs: model.py:3 in forward: why" and breaks.verdict == "not confirmed"
    eager = study.claim({"name": "graph-breaks", "run": "reference-fp32"}, expect={"high": 0})
    assert eager.verdict == "not measurable here" and "not compiled" in str(eager.reason)


def test_the_fastest_run_within_the_memory_limit(study: Tree) -> None:
    def on_device(mib: float) -> Memory:
        return Memory(host_mib=1, device_allocated_mib=mib)

    measure = {"name": "fastest-within", "runs": ["reference-fp32", "compiled"], "expected": "reference-fp32"}
    assert "no device" in str(study.claim(measure).reason)
    study.run("reference-fp32", 10.0, memory=on_device(900))
    study.run("compiled", 5.0, memory=on_device(1100))
    assert study.claim(measure).verdict == "confirmed"  # the other one is faster, in more memory
    study.run("compiled", 5.0, memory=on_device(999))
    assert study.claim(measure).verdict == "not confirmed"


def test_accuracy_curves_and_outcomes(study: Tree) -> None:
    for run, accuracy in (("reference-fp32", 0.90), ("compiled", 0.91)):
        scored = Evaluation(samples=97, accuracy=accuracy, precision=0.9, recall=0.9)
        scored.write(layout.evaluation(study.runs, run))
    measure = {"name": "accuracy", "run": "compiled", "over": "reference-fp32"}
    assert study.claim(measure, expect={"high": 0.02}).verdict == "confirmed"
    assert study.claim(measure, expect={"high": 0.005}).verdict == "not confirmed"
    assert "not evaluated" in str(study.claim(measure | {"over": "reference-double"}, expect={"high": 1}).reason)

    result = CurveResult(verdict="drifted", runs=[5, 5], level=0.05, p_value=0.01, final=[0.1, 0.2], spread=0.01)
    CurveReport(results={"alike": result}).write(study.root / "reports/curves.json")
    curves = {"name": "learning-curves", "curves": "alike"}
    assert study.claim(curves | {"verdict": "drifted"}).verdict == "confirmed"
    assert study.claim(curves | {"verdict": "consistent"}).verdict == "not confirmed"
    crashed = CurveResult(verdict="failed", reason="killed", runs=[5, 5], level=0.05)
    CurveReport(results={"alike": crashed}).write(study.root / "reports/curves.json")
    assert study.claim(curves | {"verdict": "drifted"}).verdict == "not measurable here"

    outcome = {"name": "outcome", "run": "compiled", "status": "failed"}
    assert study.claim(outcome).verdict == "not confirmed"
    study.untrained("compiled", "failed", reason="rank 0: no kernel")
    assert study.claim(outcome).verdict == "confirmed"
    assert study.claim(outcome | {"run": "gpu"}).verdict == "not measurable here"


def test_pairs_that_must_be_the_same_training(study: Tree) -> None:
    measure = {"name": "same-training", "pairs": ["compiled"]}
    assert study.claim(measure).verdict == "confirmed"
    both = study.claim(measure | {"pairs": ["compiled", "dp"]})
    assert both.verdict == "not confirmed" and "dp different (batchnorm-statistics)" in str(both.measured)


@pytest.mark.parametrize(
    ("claim", "message"),
    [
        ({"measure": {"name": "spead"}}, r"^claims.yaml: X.measure.name: 'spead' is not one of "),
        ({"measure": {"name": "memory"}}, r"^claims.yaml: X.measure.*run: missing; it has no default"),
        ({"expects": {}}, r"^claims.yaml: X.expects: unknown key: .*; did you mean expect\?"),
    ],
)
def test_a_mistake_in_the_claims_is_named(claim: dict[str, Any], message: str) -> None:
    content = {"statement": "s", "published": "p", "measure": {"name": "memory", "run": "gpu"}} | claim
    with pytest.raises(ParamsError, match=message):
        schema.parse({"X": content}, HERE)


def test_parameters_are_counted_at_another_scale_without_training_there(study: Tree) -> None:
    datasets.prepare(Digits(name="digits", limit=1), study.root / "data/prepared", study.root / "downloads")
    article = {"workload": {"options": {"hidden": 100}}}
    content = PARAMS | {"workload": {"name": "tests.support.mlp:Mlp"}, "scales": {"laptop": {}, "article": article}}
    (study.root / "params.yaml").write_text(yaml.safe_dump(content))
    measure = {"name": "parameters", "run": "compiled"}
    expected = {scale: 64 * hidden + hidden + hidden * 10 + 10 for scale, hidden in ((None, 24), ("article", 100))}
    for scale, count in expected.items():
        result = study.claim(measure | {"scale": scale}, expect={"low": count, "high": count})
        assert (result.verdict, result.measured) == ("confirmed", f"{count:,}")
