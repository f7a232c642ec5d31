import pytest

from trainparity.workloads import Workload, load, names


@pytest.mark.parametrize("name", names())
def test_every_entry_loads_with_its_defaults(name: str) -> None:
    assert isinstance(load(name, {}), Workload)
