"""Batches of digits for the image workloads' tests."""

from pathlib import Path

import torch
from torch import nn

from trainparity.data import datasets
from trainparity.data.prepared import Prepared
from trainparity.data.store import load as load_data
from trainparity.params import Digits
from trainparity.workloads import Batch, SampleRandomness, Workload


def digits(folder: Path, image_size: int = 8) -> Prepared:
    datasets.prepare(Digits(name="digits", image_size=image_size, limit=512), folder / "data", folder)
    return load_data(folder / "data")


def images(*shape: int) -> Batch:
    """Return a batch of random images [B, C, H, W] and labels."""
    generator = torch.Generator().manual_seed(0)
    samples = torch.arange(shape[0])
    return {
        "images": torch.randint(0, 256, shape, dtype=torch.uint8, generator=generator),
        "labels": samples % 10,
        "samples": samples,
    }


def num_parameters(model: nn.Module) -> int:
    return sum(parameter.numel() for parameter in model.parameters())


def accuracy_after(workload: Workload, dataset: Prepared, steps: int, batch_size: int = 64) -> float:
    """Train on all but the last 128 samples and return the accuracy on those."""
    torch.manual_seed(0)
    model = workload.build_model(dataset.batch(torch.zeros(1, dtype=torch.int64)))
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    for step in range(steps):
        batch = dataset.batch(torch.arange(step * batch_size, (step + 1) * batch_size) % (len(dataset) - 128))
        drawn = workload.draw(batch, SampleRandomness(0, step, batch["samples"]))
        optimizer.zero_grad()
        (workload.loss(model, batch | drawn) / workload.count(batch)).backward()
        optimizer.step()
    held_out = dataset.batch(torch.arange(len(dataset) - 128, len(dataset)))
    with torch.no_grad():
        scores = workload.predict(model.eval(), held_out)
    assert scores is not None and scores.shape == (128, 10)
    return float((scores.argmax(1) == held_out["labels"]).double().mean())
