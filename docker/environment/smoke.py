"""Train in each way that an image offers on the CPU, eager, compiled, DDP and FSDP2, and compare the weights."""

import os
import tempfile

import torch
import torch.multiprocessing as processes
import torchvision
from torch import distributed, nn
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor


def train(way: str) -> torch.Tensor:
    """Return the first layer's weights after three steps over one batch of eight, of which each rank has its share."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1))
    inputs = torch.randn(8, 4)
    if distributed.is_initialized():
        inputs = inputs[distributed.get_rank() :: distributed.get_world_size()]
    mesh = distributed.init_device_mesh("cpu", (2,)) if way == "fsdp" else None
    run = {
        "eager": lambda: model,
        "compiled": lambda: torch.compile(model),
        "ddp": lambda: nn.parallel.DistributedDataParallel(model),
        "fsdp": lambda: fully_shard(model, mesh=mesh),
    }[way]()
    optimizer = torch.optim.SGD(run.parameters(), lr=0.1)
    for _ in range(3):
        optimizer.zero_grad()
        run(inputs).square().mean().backward()
        optimizer.step()
    weights = model[0].weight.detach()
    return weights.full_tensor() if isinstance(weights, DTensor) else weights


def rank(number: int, meeting: str, expected: torch.Tensor) -> None:
    """Be one of two ranks."""
    distributed.init_process_group("gloo", init_method=f"file://{meeting}", rank=number, world_size=2)
    for way in ("ddp", "fsdp"):
        torch.testing.assert_close(train(way), expected)
    distributed.destroy_process_group()


if __name__ == "__main__":
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    torchvision.ops.nms(torch.zeros(1, 4), torch.zeros(1), 0.5)  # compiled against this very torch
    eager = train("eager")
    torch.testing.assert_close(train("compiled"), eager)
    with tempfile.TemporaryDirectory() as folder:
        processes.spawn(rank, (f"{folder}/meeting", eager), nprocs=2)
    print(f"torch {torch.__version__}: eager, compiled, DDP and FSDP2 train alike")
