"""Run by torchrun: for every seed, train each distributed configuration against the references trained before."""

import sys
from pathlib import Path
from typing import Any

import torch.distributed as dist

from tests.support.runs import CPU, Reference, configuration, run_phase
from trainparity.strategies import Execution
from trainparity.training.loop import Trainer

RIGHT: dict[int, dict[str, dict[str, Any]]] = {
    2: {
        "ddp": {"strategy": "ddp"},
        "ddp-accumulation": {"strategy": "ddp", "accumulation_steps": 2},
        "fsdp": {"strategy": "fsdp"},
        "fsdp-offload": {"strategy": "fsdp", "offload": "both", "accumulation_steps": 2},
        "tensor-parallel": {"strategy": "tensor_parallel"},
        "tensor-parallel-accumulation": {"strategy": "tensor_parallel", "accumulation_steps": 2},
    },
    4: {
        "fsdp-tensor-parallel": {"strategy": "fsdp_tensor_parallel", "tensor_parallel_size": 2},
        "fsdp-tensor-parallel-accumulation": {
            "strategy": "fsdp_tensor_parallel",
            "tensor_parallel_size": 2,
            "accumulation_steps": 2,
        },
    },
}
"""Settings of right configurations by their number of ranks."""


class SplitByRank(Trainer):
    """Gives each rank its own samples, as DDP's sampler does, though the ranks of a group must see the same ones."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        rank, world_size = self.execution.rank, self.execution.world_size
        self.strategy.shard = lambda samples: samples[rank::world_size]  # type: ignore[method-assign]


WRONG: dict[int, dict[str, Any]] = {
    2: {"strategy": "tensor_parallel"},
    4: {"strategy": "fsdp_tensor_parallel", "tensor_parallel_size": 2},
}
"""Settings of the run that is trained as `SplitByRank`, by the number of ranks."""


def run(reference: Reference, name: str, settings: dict[str, Any], kind: type[Trainer] = Trainer) -> None:
    """Train one configuration, as one of its ranks."""
    world_size = dist.get_world_size()
    chosen = configuration(**settings, world_size=world_size)
    execution = Execution(
        device=CPU,
        rank=dist.get_rank(),
        world_size=world_size,
        group_size=chosen.group_size,
        offload_parameters=chosen.offload == "both",
    )
    run_phase(reference.candidate(name, chosen), execution=execution, kind=kind)


def main(folder: Path, seeds: int) -> None:
    dist.init_process_group("gloo")
    world_size = dist.get_world_size()
    for seed in range(seeds):
        reference = Reference(folder / str(seed), folder / "data", main=False, seed=seed)
        for name, settings in RIGHT[world_size].items():
            run(reference, name, settings)
    run(reference, "split-by-rank", WRONG[world_size], SplitByRank)
    dist.destroy_process_group()


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
