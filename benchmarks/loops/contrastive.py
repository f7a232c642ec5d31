"""In the shape of SimCLR: two views of each sample, a loss in which all samples of a batch meet."""

import torch
from shape import BATCH, FOLDER, STEPS, batches, has, parts
from torch import nn

import trainparity

ONE = torch.randn(STEPS * BATCH, 12)
TWO = ONE + 0.1 * torch.randn(STEPS * BATCH, 12)
model = nn.Sequential(nn.Linear(12, 16), nn.ReLU(), nn.Linear(16, 8))
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
trainparity.record(model, optimizer, FOLDER)
for rows in batches():
    optimizer.zero_grad()
    for part in parts(rows):
        codes = nn.functional.normalize(model(torch.cat([ONE[part], TWO[part]])), dim=1)
        likeness = codes @ codes.T / (0.1 if has("bug_temperature") else 0.5)
        likeness.fill_diagonal_(-torch.inf)
        partner = (torch.arange(2 * len(part)) + len(part)) % (2 * len(part))
        (nn.functional.cross_entropy(likeness, partner, reduction="sum") / (2 * BATCH)).backward()
    optimizer.step()
