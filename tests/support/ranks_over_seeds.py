"""Run by torchrun: for every seed, train each distributed configuration against the references trained before."""

import sys
from pathlib import Path

import torch.distributed as dist

from tests.support.runs import CPU, Reference, configuration, run_phase
from trainparity.strategies import Execution

RIGHT = {
    "ddp": {"strategy": "ddp"},
    "ddp-accumulation": {"strategy": "ddp", "accumulation_steps": 2},
    "fsdp": {"strategy": "fsdp"},
    "fsdp-offload": {"strategy": "fsdp", "offload": "both", "accumulation_steps": 2},
}


def main(folder: Path, seeds: int) -> None:
    dist.init_process_group("gloo")
    rank, world_size = dist.get_rank(), dist.get_world_size()
    for seed in range(seeds):
        reference = Reference(folder / str(seed), folder / "data", main=False, seed=seed)
        for name, settings in RIGHT.items():
            chosen = configuration(**settings, world_size=world_size)
            offload = chosen.offload == "both"
            execution = Execution(device=CPU, rank=rank, world_size=world_size, offload_parameters=offload)
            run_phase(reference.candidate(name, chosen), execution=execution)
    dist.destroy_process_group()


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
