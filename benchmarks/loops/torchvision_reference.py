"""In the shape of torchvision's classification reference: label smoothing, warm-up, weight decay by kind, an EMA."""

import torch
from shape import BATCH, FOLDER, STEPS, batches, has, parts
from torch import nn

import trainparity

IMAGES, LABELS = torch.randn(STEPS * BATCH, 3, 8, 8), torch.randint(0, 5, (STEPS * BATCH,))
model = nn.Sequential(
    nn.Conv2d(3, 8, 3, padding=1), nn.GroupNorm(2, 8), nn.ReLU(), nn.Conv2d(8, 8, 3, stride=2), nn.ReLU(),
    nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 5),
)  # fmt: skip
if has("channels_last"):
    model = model.to(memory_format=torch.channels_last)
average = torch.optim.swa_utils.AveragedModel(model, avg_fn=lambda old, new, count: 0.9 * old + 0.1 * new)
norms = list(model[1].parameters())
others = [p for p in model.parameters() if all(p is not norm for norm in norms)]
groups = [{"params": others, "weight_decay": 1e-2}, {"params": norms, "weight_decay": 1e-2 * has("bug_normdecay")}]
optimizer = torch.optim.SGD(groups, lr=0.1, momentum=0.9, nesterov=True)
scheduler = torch.optim.lr_scheduler.LinearLR(optimizer, start_factor=0.1, total_iters=2 if has("bug_warmup") else 4)
criterion = nn.CrossEntropyLoss(label_smoothing=0.0 if has("bug_smoothing") else 0.1, reduction="sum")
trainparity.record(model, optimizer, FOLDER)
for rows in batches():
    optimizer.zero_grad()
    for part in parts(rows):
        images = IMAGES[part].contiguous(memory_format=torch.channels_last) if has("channels_last") else IMAGES[part]
        (criterion(model(images), LABELS[part]) / BATCH).backward()
    if not has("bug_noclip"):
        nn.utils.clip_grad_norm_(model.parameters(), 0.05)
    optimizer.step()
    scheduler.step()
    average.update_parameters(model)
    model.eval()
    with torch.no_grad():
        model(IMAGES[:7]), average(IMAGES[:7])
    model.train(not has("bug_eval"))
