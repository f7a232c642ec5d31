"""In the shape of a variational autoencoder: a loss of what is restored and of two outputs that it is made from."""

import torch
from shape import BATCH, FOLDER, STEPS, batches, has, parts
from torch import Tensor, nn

import trainparity

DATA, NOISE = torch.rand(STEPS * BATCH, 16), torch.randn(STEPS * BATCH, 3)


class Variational(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.enter, self.mean, self.logvar = nn.Linear(16, 12), nn.Linear(12, 3), nn.Linear(12, 3)
        self.restore = nn.Sequential(nn.Linear(3, 12), nn.ReLU(), nn.Linear(12, 16), nn.Sigmoid())

    def forward(self, data: Tensor, noise: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        hidden = torch.relu(self.enter(data))
        mean, logvar = self.mean(hidden), self.logvar(hidden)
        code = mean + noise * torch.exp(logvar if has("bug_deviation") else logvar / 2)
        return self.restore(code.detach() if has("bug_detach") else code), mean, logvar


model = Variational()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
trainparity.record(torch.compile(model, backend="eager") if has("compile") else model, optimizer, FOLDER)
for rows in batches():
    optimizer.zero_grad()
    for part in parts(rows):
        restored, mean, logvar = model(DATA[part], NOISE[part])
        error = nn.functional.binary_cross_entropy(restored, DATA[part], reduction="sum")
        divergence = -0.5 * (1 + logvar - mean.square() - logvar.exp()).sum()
        (error + (4 if has("bug_beta") else 1) * divergence).backward()
    optimizer.step()
