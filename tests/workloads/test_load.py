import os
import sys
from pathlib import Path

import pytest

from trainparity.validation import ParamsError
from trainparity.workloads import Workload, load, names


@pytest.mark.parametrize("name", names())
def test_every_entry_loads_with_its_defaults(name: str) -> None:
    assert isinstance(load(name, {}), Workload)


@pytest.mark.parametrize("ending", ["os._exit(0)", "sys.exit(0)", "raise SystemExit", "1 / 0", "if"])
def test_a_module_that_ends_the_process_is_a_mistake(
    ending: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its exit code 0 would be a verdict."""
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "ending.py").write_text(f"import os, sys\nprint(1)\n{ending}\n")
    with pytest.raises(ParamsError, match=r"(importing ending ended with|can't be imported)"):
        load("ending:Model", {})


CHANGING = """
import os, sys
os.chdir("/")
sys.stdout = sys.stderr = None
if not (child := os.fork()):
    os._exit(3)  # its own is real
code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
from tests.support.mlp import Mlp
"""


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_module_that_changes_the_process_changes_it_for_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Relative paths of ours would lead elsewhere."""
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "changing.py").write_text(CHANGING)
    before = Path.cwd(), sys.stdout, sys.stderr, os._exit
    assert isinstance(load("changing:Mlp", {}), Workload)
    assert (Path.cwd(), sys.stdout, sys.stderr, os._exit) == before
    assert sys.modules["changing"].code == 3
