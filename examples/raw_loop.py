"""A plain PyTorch loop with the Recorder in it: its last two lines of set-up are all that was added.

python examples/raw_loop.py runs/plain
for i in 1 2 3; do TRAINPARITY_TWIN=$i python examples/raw_loop.py runs/plain; done
torchrun --nproc-per-node 2 examples/raw_loop.py runs/ddp
trainparity compare runs/plain runs/ddp
"""

import os
import sys

import torch
import torch.distributed as dist
from sklearn.datasets import load_digits
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import trainparity

BATCH, STEPS = 32, 20


def main(folder: str) -> None:
    """Train on the digits, alone or under torchrun."""
    distributed = "RANK" in os.environ
    if distributed:
        dist.init_process_group("gloo")
    rank, world_size = (dist.get_rank(), dist.get_world_size()) if distributed else (0, 1)
    digits = load_digits()
    images, labels = torch.from_numpy(digits.data).float() / 16, torch.from_numpy(digits.target).long()

    torch.manual_seed(0)
    model: nn.Module = nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10))
    if distributed:
        model = DistributedDataParallel(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    recorder = trainparity.record(model, optimizer, folder)

    for step in range(STEPS):
        batch = torch.arange(step * BATCH, (step + 1) * BATCH)[rank::world_size]
        loss = nn.functional.cross_entropy(model(images[batch]), labels[batch])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        recorder.log(loss=loss)
    recorder.close()
    if distributed:
        dist.destroy_process_group()


if __name__ == "__main__":
    main(sys.argv[1])
