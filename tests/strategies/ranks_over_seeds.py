"""Run by torchrun: for every seed, train each distributed configuration and judge it; rank 0 writes results."""

import json
import sys
from pathlib import Path

import torch.distributed as dist

from tests.runs import CPU, Reference, configuration, train
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
        here = folder / str(seed)
        if rank == 0:
            reference = Reference(here, folder / "data", seed=seed)
        dist.barrier()
        if rank != 0:  # only what names the reference's files
            reference = Reference.__new__(Reference)
            reference.folder, reference.dataset, reference.settings = here, folder / "data", {"seed": seed}
            reference.spec = reference.candidate("reference", configuration())
        for name, settings in RIGHT.items():
            chosen = configuration(**settings, world_size=world_size)
            offload = chosen.offload == "both"
            execution = Execution(device=CPU, rank=rank, world_size=world_size, offload_parameters=offload)
            run = train(reference.candidate(name, chosen), execution=execution)
            if rank == 0:
                result = reference.judge(run)
                results[f"{name} {seed}"] = result.model_dump(include={"verdict", "distance_over_floor", "ranks_agree"})
    if rank == 0:
        (folder / "results.json").write_text(json.dumps(results))
    dist.destroy_process_group()


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
