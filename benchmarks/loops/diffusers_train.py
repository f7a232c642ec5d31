"""In the shape of diffusers' unconditional training: noise is predicted from noisy images and time steps."""

import torch
from shape import BATCH, FOLDER, STEPS, batches, has, parts
from torch import Tensor, nn

import trainparity

CLEAN, NOISE = torch.randn(STEPS * BATCH, 16), torch.randn(STEPS * BATCH, 16)
TIMES = torch.randint(0, 10, (STEPS * BATCH,))
ALPHA = torch.linspace(0.99, 0.1, 10)


class Denoiser(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.time, self.enter, self.leave = nn.Embedding(10, 32), nn.Linear(16, 32), nn.Linear(32, 16)

    def forward(self, noisy: Tensor, times: Tensor) -> Tensor:
        hidden = self.enter(noisy) + self.time(times)
        if has("bug_activation"):
            hidden = torch.relu(hidden)
        return self.leave(nn.functional.silu(hidden))


model = Denoiser()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
trainparity.record(model, optimizer, FOLDER)
for rows in batches():
    for part in parts(rows):
        clean, noise, times = CLEAN[part], NOISE[part], TIMES[part]
        level = ALPHA[times][:, None]
        noisy = level.sqrt() * clean + (1 - level).sqrt() * noise
        if has("bug_times"):
            times = (times + 1) % 10
        errors = (model(noisy, times) - (clean if has("bug_target") else noise)).square().mean(1)
        weights = level[:, 0] if has("bug_weights") else torch.ones(len(part))
        ((weights * errors).sum() / BATCH).backward()
    optimizer.step()
    if not has("bug_nozero"):
        optimizer.zero_grad(set_to_none=False)
