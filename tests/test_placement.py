from pathlib import Path
from typing import Any

import pytest

from tests.support.machines import LINUX, MACHINES
from trainparity.environment import Accelerator
from trainparity.params import Configuration, load
from trainparity.placement import Placement, Unavailable, accelerator, place

ROOT = Path(__file__).parents[1]


def placed(machine: str, strategy: str = "single", **settings: Any) -> Placement | Unavailable:
    content = {"strategy": strategy, "device": "auto", "precision": "fp32", **settings}
    return place(Configuration.model_validate(content), "auto", MACHINES[machine])


@pytest.mark.parametrize(("machine", "device"), [("cpu", "cpu"), ("one", "cuda"), ("apple", "mps")])
def test_auto_takes_the_best_device(machine: str, device: str) -> None:
    assert accelerator("auto", MACHINES[machine]) == device
    assert accelerator("cpu", MACHINES[machine]) == "cpu"
    assert placed(machine) == Placement(device=device, backend=None, num_threads=8, emulated=None)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("machine", "device", "backend"),
    [("cpu", "cpu", "gloo"), ("one", "cuda", "gloo"), ("two", "cuda", "nccl")],
)
@pytest.mark.parametrize("strategy", ["ddp", "fsdp"])
def test_nccl_wants_a_gpu_a_rank(machine: str, device: str, backend: str, strategy: str) -> None:
    result = placed(machine, strategy, world_size=2)
    assert isinstance(result, Placement)
    assert (result.device, result.backend, result.num_threads) == (device, backend, 4)


@pytest.mark.parametrize("machine", ["cpu", "one", "apple"])
def test_data_parallel_without_enough_gpus_is_emulated_on_the_cpu(machine: str) -> None:
    result = placed(machine, "data_parallel", world_size=2)
    assert isinstance(result, Placement) and result.device == "cpu"
    assert "needs 2 GPUs" in (result.emulated or "")


def test_data_parallel_with_enough_gpus_is_real() -> None:
    result = placed("two", "data_parallel", world_size=2)
    assert isinstance(result, Placement) and (result.device, result.emulated) == ("cuda", None)


def test_offload_is_emulated_on_the_cpu_alone() -> None:
    on_cpu, on_gpu = (placed(m, "fsdp", world_size=2, offload="both") for m in ("cpu", "two"))
    assert isinstance(on_cpu, Placement) and "offload moves nothing" in (on_cpu.emulated or "")
    assert isinstance(on_gpu, Placement) and on_gpu.emulated is None


def test_two_facts_that_are_imitated_are_both_said() -> None:
    result = placed("cpu", "data_parallel", world_size=2, offload="activations")
    assert isinstance(result, Placement) and result.emulated
    assert "needs 2 GPUs" in result.emulated and "offload moves nothing" in result.emulated


def test_data_parallel_is_emulated_where_it_is_pinned_to_the_cpu() -> None:
    result = placed("two", "data_parallel", world_size=2, device="cpu")
    assert isinstance(result, Placement) and result.device == "cpu" and result.emulated


def test_compiling_for_a_gpu_needs_no_compiler_of_ours() -> None:
    assert isinstance(placed("one without g++", compile="default"), Placement)


@pytest.mark.parametrize(
    ("machine", "settings", "expected"),
    [
        ("one", {"strategy": "data_parallel", "world_size": 2, "device": "cuda"}, "needs 2 NVIDIA GPUs; here are 1"),
        ("apple", {"strategy": "data_parallel", "world_size": 2, "device": "mps"}, "needs 2 NVIDIA GPUs; here are 0"),
        ("ancient", {"compile": "default"}, "compute capability 7.0"),
        ("cpu", {"device": "cuda"}, "no NVIDIA GPU"),
        ("bare", {"device": "cuda"}, "build without CUDA"),
        ("cpu", {"device": "mps"}, "no Apple GPU"),
        ("bare", {"compile": "default"}, "C++ compiler"),
        ("cpu", {"precision": "tf32"}, "tf32 needs"),
        ("old", {"precision": "tf32"}, "tf32 needs"),
        ("old", {"precision": "bf16"}, "bf16 needs"),
        ("apple", {"strategy": "ddp", "world_size": 2}, "no backend for Apple GPUs"),
        ("one", {"strategy": "ddp", "world_size": 2, "backend": "nccl"}, "a GPU for each of the 2 ranks"),
    ],
)
def test_what_cannot_run_says_why_and_what_to_do(machine: str, settings: dict[str, Any], expected: str) -> None:
    result = placed(machine, **settings)
    assert isinstance(result, Unavailable)
    assert expected in result.reason and result.remedy


@pytest.mark.parametrize("machine", MACHINES)
def test_every_entry_of_params_yaml_has_a_place_or_a_reason(machine: str) -> None:
    params = load(ROOT / "params.yaml")
    for configuration in params.configs.values():
        result = place(configuration, params.accelerator, MACHINES[machine])
        assert isinstance(result, Placement) or (result.reason and result.remedy)


def test_ranks_on_two_nodes_share_the_cores_and_gpus_of_both() -> None:
    gpu = Accelerator(kind="cuda", name="GPU", memory_mib=1, capability="9.0")
    both = LINUX.model_copy(update={"nodes": 2, "accelerators": [gpu]})
    ddp = Configuration(strategy="ddp", device="cuda", precision="fp32", world_size=2)
    placed, alone = place(ddp, "auto", both), place(ddp, "auto", both.model_copy(update={"nodes": 1}))
    assert isinstance(placed, Placement) and isinstance(alone, Placement)
    assert (placed.num_threads, placed.backend) == (8, "nccl")
    assert (alone.num_threads, alone.backend) == (4, "gloo")
    assert both.fingerprint != LINUX.fingerprint
