"""deploy/slurm.sh without Slurm; tests/docker runs it on a cluster."""

import re
import subprocess
from pathlib import Path

from trainparity.environment import NODES
from trainparity.launch import supervision
from trainparity.launch.nodes import RENDEZVOUS

SCRIPT = Path(__file__).parents[2] / "deploy/slurm.sh"


def test_it_says_so_when_it_is_submitted_from_elsewhere(tmp_path: Path) -> None:
    done = subprocess.run(["bash", SCRIPT], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 2 and done.stderr == f"no params.yaml in {tmp_path}: say sbatch in the project's folder\n"


def test_it_sets_what_the_code_reads() -> None:
    assert set(re.findall(r"export (TRAINPARITY_\w+)=", SCRIPT.read_text())) == {NODES, RENDEZVOUS}


def test_the_warning_comes_early_enough_for_a_checkpoint() -> None:
    [seconds] = re.findall(r"^#SBATCH --signal=B:TERM@(\d+)$", SCRIPT.read_text(), re.MULTILINE)
    assert int(seconds) > supervision.GRACE_S
