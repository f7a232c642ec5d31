"""In the shape of torchtune's LoRA recipe: a frozen base, adapters that are trained, a schedule per step."""

import torch
from shape import BATCH, FOLDER, STEPS, batches, has, parts
from torch import Tensor, nn

import trainparity

DATA, LABELS = torch.randn(STEPS * BATCH, 12), torch.randint(0, 4, (STEPS * BATCH,))


class Adapted(nn.Module):
    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.base = nn.Linear(inputs, outputs).requires_grad_(has("bug_unfrozen"))
        self.down, self.up = nn.Linear(inputs, 2, bias=False), nn.Linear(2, outputs, bias=False)
        self.scale = 1.0 if has("bug_alpha") else 2.0

    def forward(self, inputs: Tensor) -> Tensor:
        return self.base(inputs) + self.scale * self.up(self.down(inputs))


model = nn.Sequential(Adapted(12, 16), nn.ReLU(), Adapted(16, 4))
optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=1e-2)
scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 3 if has("bug_horizon") else 10)
trainparity.record(model, optimizer, FOLDER)
for rows in batches():
    for part in parts(rows):
        loss = nn.functional.cross_entropy(model(DATA[part]), LABELS[part], reduction="sum") / BATCH
        if has("bug_skipped") and int(part[0]) % BATCH == 0:
            continue
        loss.backward()
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    scheduler.step()
