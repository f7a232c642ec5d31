"""Run by torchrun: for every seed, train each distributed configuration and judge it; rank 0 writes results."""

import json
import sys
from pathlib import Path

import torch.distributed as dist

from tests.runs import CPU, Reference, configuration, load, run_phase
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
    results: dict[str, dict[str, object]] = {}
    for seed in range(seeds):
        reference = Reference(folder / str(seed), folder / "data", main=rank == 0, seed=seed)
        dist.barrier()
        for name, settings in RIGHT.items():
            chosen = configuration(**settings, world_size=world_size)
            offload = chosen.offload == "both"
            execution = Execution(device=CPU, rank=rank, world_size=world_size, offload_parameters=offload)
            candidate = reference.candidate(name, chosen)
            run_phase(candidate, execution=execution)
            if rank == 0:
                result = reference.judge(load(candidate))
                results[f"{name} {seed}"] = result.model_dump(include={"verdict", "distance_over_floor", "ranks_agree"})
    if rank == 0:
        (folder / "results.json").write_text(json.dumps(results))
    dist.destroy_process_group()


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
