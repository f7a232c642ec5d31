"""In which formats a model computes, and gradients are added up."""

from collections.abc import Iterator

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import bf16_compress_hook
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.nn.parallel import DistributedDataParallel

from trainparity.parity.recording.formats import accumulated_in, computed_in, reduced_in, stored_in


@pytest.fixture
def mesh() -> Iterator[DeviceMesh]:
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield init_device_mesh("cpu", (1,))
    dist.destroy_process_group()


@pytest.mark.parametrize(
    ("policy", "computed", "added_up"),
    [
        ({}, "fp32", None),
        ({"reduce_dtype": torch.bfloat16}, "fp32", "bf16"),
        ({"param_dtype": torch.bfloat16, "reduce_dtype": torch.float32}, "bf16", "fp32"),
    ],
)
def test_the_formats_of_a_policy_are_those_of_its_products_and_of_its_sums(
    mesh: DeviceMesh, policy: dict[str, torch.dtype], computed: str, added_up: str | None
) -> None:
    model = fully_shard(nn.Linear(2, 2), mesh=mesh, mp_policy=MixedPrecisionPolicy(**policy))
    found = accumulated_in(model)
    assert computed_in(model, None).name == computed and (found.name if found else None) == added_up
    assert reduced_in(model) == found


def test_a_compiled_model_below_a_wrapper_is_looked_through(mesh: DeviceMesh) -> None:
    model = DistributedDataParallel(torch.compile(nn.Linear(2, 2)))
    assert reduced_in(model) is None
    model.register_comm_hook(None, bf16_compress_hook)
    found = reduced_in(model)
    assert found is not None and found.name == "bf16"


def test_a_model_that_is_its_own_module_is_looked_through_once() -> None:
    class Plain(nn.Linear):
        @property
        def module(self) -> nn.Module:
            return self

    assert reduced_in(Plain(2, 2)) is None


@pytest.mark.parametrize(
    ("dtype", "name"), [(torch.complex64, "fp32"), (torch.complex128, "fp64"), (torch.complex32, "fp16")]
)
def test_complex_numbers_are_computed_in_the_format_of_their_parts(dtype: torch.dtype, name: str) -> None:
    model = nn.ParameterList([torch.zeros(2, dtype=dtype)])
    assert (computed_in(model, None).name, stored_in(model).name) == (name, name)


@pytest.mark.parametrize("stored", [torch.int64, torch.float8_e4m3fn, torch.float4_e2m1fn_x2])
def test_a_frozen_weight_of_few_bits_or_integers_is_not_what_a_model_computes_in(stored: torch.dtype) -> None:
    weight = nn.Parameter(torch.zeros(8, dtype=torch.uint8).view(stored), requires_grad=False)
    alone, beside = nn.Module(), nn.Linear(2, 2, dtype=torch.bfloat16)
    alone.weight, beside.stored = weight, weight
    assert (computed_in(alone, None).name, stored_in(alone).name) == ("fp32", "fp32")
    assert (computed_in(beside, None).name, stored_in(beside).name) == ("bf16", "bf16")
