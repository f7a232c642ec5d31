import pytest

from trainparity.workloads import WORKLOADS, Workload, load


@pytest.mark.parametrize("name", WORKLOADS)
def test_every_entry_loads_with_its_defaults(name: str) -> None:
    assert isinstance(load(name, {}), Workload)
