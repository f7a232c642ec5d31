"""A plain PyTorch loop whose global batches stay the same on any number of ranks and micro-batches.

The sampler is what a loop needs to be compared; the Recorder is attached from outside:

trainparity ab "python examples/raw_loop.py" "torchrun --nproc-per-node 2 examples/raw_loop.py"
trainparity ab "python examples/raw_loop.py" "python examples/raw_loop.py 4"    # 4 micro-batches

or with its two lines here, which a folder as the last argument switches on:

python examples/raw_loop.py 1 runs/plain
for i in 1 2 3; do TRAINPARITY_TWIN=$i python examples/raw_loop.py 1 runs/plain; done
torchrun --nproc-per-node 2 examples/raw_loop.py 1 runs/ddp
trainparity compare runs/plain runs/ddp
"""

import os
import sys

import torch
import torch.distributed as dist
from sklearn.datasets import load_digits
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset

import trainparity

BATCH, EPOCHS = 64, 1


def main(accumulation_steps: int, folder: str | None) -> None:
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
    batches = trainparity.GlobalBatchSampler(
        len(images),
        BATCH,
        rank=rank,
        world_size=world_size,
        accumulation_steps=accumulation_steps,
        drop_last=True,
    )
    loader = DataLoader(TensorDataset(images, labels), batch_sampler=batches)
    if folder:
        recorder = trainparity.record(model, optimizer, folder)

    for epoch in range(EPOCHS):
        batches.set_epoch(epoch)
        for number, (inputs, targets) in enumerate(loader, 1):
            loss = nn.functional.cross_entropy(model(inputs), targets) / accumulation_steps
            loss.backward()
            if number % accumulation_steps == 0:
                optimizer.step()
                optimizer.zero_grad()
    if folder:
        recorder.close()
    if distributed:
        dist.destroy_process_group()


if __name__ == "__main__":
    main(int(sys.argv[1]) if sys.argv[1:] else 1, sys.argv[2] if sys.argv[2:] else None)
