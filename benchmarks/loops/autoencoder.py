"""In the shape of Lightning's first example: an encoder and a decoder that the step calls one after the other."""

import torch
from shape import BATCH, FOLDER, STEPS, batches, has, parts
from torch import nn

import trainparity

DATA = torch.rand(STEPS * BATCH, 4, 4)


class AutoEncoder(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(16, 8), nn.ReLU(), nn.Linear(8, 3))
        self.decoder = nn.Sequential(nn.Linear(3, 8), nn.ReLU(), nn.Linear(8, 16))

    def training_step(self, part: torch.Tensor) -> torch.Tensor:
        flat = DATA[part].flatten(1)
        restored = self.decoder(self.encoder(flat))
        target = flat.flip(1) if has("bug_target") else flat
        return nn.functional.mse_loss(restored, target, reduction="sum") / (16 * BATCH)


model = AutoEncoder()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
trainparity.record(model, optimizer, FOLDER)
for rows in batches():
    optimizer.zero_grad()
    for part in parts(rows[1:] if has("bug_dropped") else rows):
        model.training_step(part).backward()
    optimizer.step()
