"""An Accelerate loop with the Recorder in it, as a tracker.

python examples/accelerate_loop.py runs/plain
for i in 1 2 3; do TRAINPARITY_TWIN=$i python examples/accelerate_loop.py runs/plain; done
torchrun --nproc-per-node 2 examples/accelerate_loop.py runs/ddp          # or: accelerate launch
trainparity compare runs/plain runs/ddp
"""

import sys

import torch
from accelerate import Accelerator
from accelerate.utils import DataLoaderConfiguration
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from trainparity.accelerate import RecordTracker


def main(folder: str, accumulation_steps: int = 1) -> None:
    """Train one pass over some digits; the global batch is 32 on any number of processes."""
    tracker = RecordTracker(folder)
    accelerator = Accelerator(
        cpu=True,
        log_with=tracker,
        gradient_accumulation_steps=accumulation_steps,
        # A batch of the loader is the global batch: each process takes its share of it.
        dataloader_config=DataLoaderConfiguration(split_batches=True),
    )
    digits = load_digits()
    data = TensorDataset(torch.from_numpy(digits.data[:640]).float() / 16, torch.from_numpy(digits.target[:640]).long())
    torch.manual_seed(0)
    model: nn.Module = nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    loader = DataLoader(data, batch_size=32 // accumulation_steps)
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    accelerator.init_trackers("runs", {"accumulation_steps": accumulation_steps})
    tracker.attach(model, optimizer)

    for images, labels in loader:
        with accelerator.accumulate(model):
            loss = nn.functional.cross_entropy(model(images), labels)
            accelerator.backward(loss)
            accelerator.log({"loss": loss})
            if accelerator.sync_gradients:
                accelerator.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad()
    accelerator.end_training()


if __name__ == "__main__":
    main(sys.argv[1], *(int(value) for value in sys.argv[2:]))
