"""Run by torchrun on four ranks: models laid out over the ranks in every usual way, and what is recorded of each."""

import json
import sys
from pathlib import Path

import torch
import torch.distributed as dist
from safetensors.torch import load_file
from torch import nn
from torch.distributed.checkpoint.state_dict import get_model_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

from trainparity import checkpoints
from trainparity.parity.recording.groups import groups
from trainparity.parity.recording.perturb import perturb

PLAN = {"0": ColwiseParallel(), "2": RowwiseParallel()}


def model() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 4), nn.Linear(4, 4))


def distributed() -> dict[str, nn.Module]:
    line = init_device_mesh("cpu", (4,))
    square = init_device_mesh("cpu", (2, 2), mesh_dim_names=("data", "model"))
    both = parallelize_module(model(), square["model"], PLAN)
    fully_shard(both, mesh=square["data"])
    rows_only = parallelize_module(model(), square["model"], PLAN)  # no wrapper over the other dimension
    return {
        "ddp": nn.parallel.DistributedDataParallel(model()).module,
        "fsdp": fully_shard(model(), mesh=line),
        "hybrid-fsdp": fully_shard(model(), mesh=square),
        "tensor-parallel": parallelize_module(model(), line, PLAN),
        "tensor-parallel-pairs": rows_only,
        "fsdp-tensor-parallel": both,
    }


def moved_alike(module: nn.Module) -> bool:
    """Tell whether a twin's weights are one model still: ranks that hold the same part moved it alike."""
    perturb(module, 2.0**-10, seed=1)
    whole = torch.cat([(p.full_tensor() if isinstance(p, DTensor) else p).flatten() for p in module.parameters()])
    everyone = [torch.empty_like(whole) for _ in range(dist.get_world_size())]
    dist.all_gather(everyone, whole.detach())
    return all(torch.equal(everyone[0], other) for other in everyone)


def whole_alike(module: nn.Module) -> bool:
    """Tell whether tensors made whole one by one are what torch gathers of a state, on rank 0."""
    ours = checkpoints._on_rank_0(get_model_state_dict(module, options=checkpoints._SHARDED))
    gathered = get_model_state_dict(module, options=checkpoints._OPTIONS)
    return ours.keys() == gathered.keys() and all(torch.equal(ours[name], gathered[name]) for name in ours)


def loads_alike(module: nn.Module, folder: Path) -> bool:
    """Tell whether weights and an optimizer's state that were saved whole are loaded by every rank as its part."""
    optimizer = torch.optim.Adam(module.parameters(), foreach=False)
    for parameter in module.parameters():
        parameter.grad = parameter.detach().clone()
    optimizer.step()
    main = dist.get_rank() == 0
    checkpoints.save(folder / "before", module, optimizer, {}, {}, main=main)
    perturb(module, 2.0**-4, seed=2)
    optimizer.step()
    dist.barrier()  # rank 0 has written
    checkpoints.load(folder / "before", module, optimizer)
    checkpoints.save(folder / "after", module, optimizer, {}, {}, main=main)
    dist.barrier()
    before, after = (load_file(folder / name / "state.safetensors") for name in ("before", "after"))
    return before.keys() == after.keys() and all(torch.equal(before[name], after[name]) for name in before)


def main(path: Path) -> None:
    dist.init_process_group("gloo")
    found = {
        name: {
            "groups": groups(module).tolist(),
            "moved": moved_alike(module),
            "whole": whole_alike(module),
            "loaded": loads_alike(module, path.parent / name),
        }
        for name, module in distributed().items()
    }
    if dist.get_rank() == 0:
        path.write_text(json.dumps(found))
    dist.destroy_process_group()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
