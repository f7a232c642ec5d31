"""What is known of strategies before any of them runs."""

import subprocess
import sys

import pytest

from trainparity import strategies
from trainparity.strategies import Strategy

NAMES = pytest.mark.parametrize("name", strategies.names())


@NAMES
def test_every_strategy_is_where_its_entry_says(name: str) -> None:
    found = strategies.load(name)
    assert issubclass(found, Strategy) and found.__module__ == strategies.module_of(name)


def test_no_strategy_is_imported_before_it_is_asked_for() -> None:
    """Nor is torch, which settings are read without."""
    script = (
        "import sys; from trainparity import strategies; strategies.load('ddp'); strategies.load('data_parallel');"
        "print(*(name for name in sys.modules if name == 'torch' or name.startswith('trainparity.strategies.')))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    names = ["base", "data_parallel", "ddp", "distributed", "registry"]
    assert sorted(done.stdout.split()) == [f"trainparity.strategies.{name}" for name in names]
