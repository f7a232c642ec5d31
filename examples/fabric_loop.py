"""A Lightning Fabric loop with the Recorder in it.

python examples/fabric_loop.py runs/plain
for i in 1 2 3; do TRAINPARITY_TWIN=$i python examples/fabric_loop.py runs/plain; done
torchrun --nproc-per-node 2 examples/fabric_loop.py runs/ddp
trainparity compare runs/plain runs/ddp
"""

import os
import sys

import torch
from lightning.fabric import Fabric
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import trainparity


def main(folder: str, accumulation_steps: int = 1) -> None:
    """Train one pass over some digits; the global batch is 32 on any number of processes."""
    world_size = int(os.environ.get("WORLD_SIZE", "1"))
    fabric = Fabric(accelerator="cpu", devices=world_size, strategy="ddp" if world_size > 1 else "auto")
    fabric.launch()
    digits = load_digits()
    data = TensorDataset(torch.from_numpy(digits.data[:640]).float() / 16, torch.from_numpy(digits.target[:640]).long())
    fabric.seed_everything(0, verbose=False)
    plain = nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10))
    model, optimizer = fabric.setup(plain, torch.optim.AdamW(plain.parameters(), lr=1e-3))
    loader = fabric.setup_dataloaders(DataLoader(data, batch_size=32 // world_size // accumulation_steps))
    recorder = trainparity.record(model, optimizer, folder)

    for index, (images, labels) in enumerate(loader):
        last = (index + 1) % accumulation_steps == 0
        with fabric.no_backward_sync(model, enabled=not last):
            loss = nn.functional.cross_entropy(model(images), labels) / accumulation_steps
            fabric.backward(loss)
        if last:
            fabric.clip_gradients(model, optimizer, max_norm=1.0)
            optimizer.step()
            optimizer.zero_grad()
    recorder.close()


if __name__ == "__main__":
    main(sys.argv[1], *(int(value) for value in sys.argv[2:]))
