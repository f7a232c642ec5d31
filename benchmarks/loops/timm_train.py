"""In the shape of timm's train.py: accumulation with a shorter last group, AdamW, a head trained at another rate."""

import torch
from shape import BATCH, FOLDER, STEPS, batches, has, parts
from torch import nn

import trainparity

IMAGES, LABELS = torch.randn(STEPS * BATCH, 64), torch.randint(0, 5, (STEPS * BATCH,))
model = nn.Sequential(nn.Linear(64, 32), nn.GELU(), nn.LayerNorm(32), nn.Linear(32, 32), nn.GELU(), nn.Linear(32, 5))
head = list(model[5].parameters())
body = [p for p in model.parameters() if all(p is not other for other in head)]
rate = 1e-3 if has("bug_headrate") else 1e-2
optimizer = torch.optim.AdamW([{"params": body, "lr": 1e-3}, {"params": head, "lr": rate}], weight_decay=0.05)
trainparity.record(torch.compile(model, backend="eager") if has("compile") else model, optimizer, FOLDER)
for step, whole in enumerate(batches()):
    rows = whole[:10] if step == STEPS - 1 else whole  # the last group of the epoch is shorter
    cut = [rows[i : i + 4] for i in range(0, len(rows), 4)] if has("accum") else parts(rows)
    optimizer.zero_grad()
    for part in cut:
        with torch.autocast("cpu", torch.bfloat16, enabled=has("bf16")):
            output = model(IMAGES[part])
        loss = nn.functional.cross_entropy(output.float(), LABELS[part], reduction="sum")
        (loss / (BATCH if has("bug_leftover") else len(rows))).backward()
        if has("bug_zeroinside"):
            optimizer.zero_grad()
    if has("bug_detach"):
        model[0].weight.grad.zero_()
    optimizer.step()
