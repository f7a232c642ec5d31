"""The Recorder in other people's loops: each example alone, on two gloo ranks and with accumulation."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support import warm
from tests.support.browser import complaints
from tests.support.scripts import torchrun
from trainparity.parity.compare import compare_folders, compare_in_detail
from trainparity.parity.recording.trace import Trace
from trainparity.report import page
from trainparity.report.origin import Origin

EXAMPLES = Path(__file__).parents[2] / "examples"
LOOPS = {"accelerate": "accelerate", "fabric": "lightning", "lightning": "lightning", "transformers": "transformers"}
LIBRARIES = (*LOOPS.values(), "transformers.trainer", "transformers.models.llama.modeling_llama")


OFFLINE = {"HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"}


def run(script: str, *arguments: str, ranks: int = 1, **environment: str) -> None:
    """Run an example on some ranks, from a Python that has its libraries imported."""
    launcher = torchrun(ranks, *LIBRARIES).split() if ranks > 1 else [warm.python(*LIBRARIES)]
    command = [*launcher, str(EXAMPLES / script), *arguments]
    done = subprocess.run(
        command, env={**os.environ, **OFFLINE, **environment}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-4000:]


def same(left: Path, right: Path) -> None:
    found = compare_folders(left, right)
    assert found.verdict in ("bitwise", "equivalent"), (found.reason, found.explanation, found.evidence)
    traces = Trace.load(left), Trace.load(right)
    # What no cause was needed for was seen all the same: samples, and gradients that changed something.
    assert traces[0].arrays["samples"].tolist() == traces[1].arrays["samples"].tolist()
    assert (traces[0].arrays["num_samples"] > 0).all() and (traces[0].arrays["gradient_norm"] > 0).all()


@pytest.mark.slow
@pytest.mark.parametrize("loop", LOOPS)
def test_ddp_on_two_ranks_and_accumulation_are_the_same_training(loop: str, tmp_path: Path) -> None:
    pytest.importorskip(LOOPS[loop])
    script = f"{loop}_loop.py"
    run(script, str(tmp_path / "plain"))
    run(script, str(tmp_path / "plain"), TRAINPARITY_TWIN="1")
    run(script, str(tmp_path / "ddp"), ranks=2)
    run(script, str(tmp_path / "accumulated"), "2")
    for name in ("ddp", "accumulated"):
        same(tmp_path / "plain", tmp_path / name)
    ddp, accumulated = Trace.load(tmp_path / "ddp"), Trace.load(tmp_path / "accumulated")
    assert ddp.arrays["rank/backwards"].tolist()[0] == [1, 1]
    assert accumulated.arrays["rank/backwards"].tolist()[0] == [2]


@pytest.mark.slow
def test_both_halves_of_a_gan_in_lightning_are_the_same_training_on_two_ranks(tmp_path: Path) -> None:
    pytest.importorskip("lightning")
    run("lightning_gan.py", str(tmp_path / "plain"))
    run("lightning_gan.py", str(tmp_path / "plain"), TRAINPARITY_TWIN="1")
    run("lightning_gan.py", str(tmp_path / "ddp"), ranks=2)
    same(tmp_path / "plain", tmp_path / "ddp")
    same(tmp_path / "plain" / "models" / "discriminator", tmp_path / "ddp" / "models" / "discriminator")


@pytest.mark.slow
def test_a_plain_loop_under_torchrun(tmp_path: Path) -> None:
    run("raw_loop.py", "1", str(tmp_path / "plain"))
    run("raw_loop.py", "1", str(tmp_path / "plain"), TRAINPARITY_TWIN="1")
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    command = [*torchrun, str(EXAMPLES / "raw_loop.py"), "2", str(tmp_path / "ddp")]
    done = subprocess.run(command, env=os.environ | OFFLINE, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-4000:]
    same(tmp_path / "plain", tmp_path / "ddp")


@pytest.mark.slow
def test_the_token_mean_bug_of_2024_is_named_and_its_repair_is_equivalent(tmp_path: Path) -> None:
    pytest.importorskip("transformers")
    run("token_means.py", str(tmp_path / "full"), "full")
    run("token_means.py", str(tmp_path / "full"), "full", TRAINPARITY_TWIN="1")
    for how in ("means", "tokens"):
        run("token_means.py", str(tmp_path / how), how)
    found, details = compare_in_detail(tmp_path / "full", tmp_path / "means")
    assert (found.verdict, found.cause, found.step) == ("different", "loss-normalisation", 0), found.reason
    assert "mean of means" in (found.explanation or "")
    # Each micro-batch weighs its share of the tokens: by their count, the weights are 1 on average.
    weights = found.evidence["weights_of_the_reference"]
    assert sum(weights) / len(weights) == pytest.approx(1, abs=1e-3) and max(weights) > 1.05 * min(weights)
    assert compare_folders(tmp_path / "full", tmp_path / "tokens").verdict == "equivalent"
    shown = page.compared({"means": found}, {"means": details}, Origin("trainparity compare", None), command="compare")
    (tmp_path / "page.html").write_text(shown, encoding="utf-8")
    assert complaints(tmp_path / "page.html") == []
