"""In the shape of torchvision's detection reference: lists of images, a model that returns its losses in training."""

import torch
from shape import BATCH, FOLDER, STEPS, batches, has, parts
from torch import Tensor, nn

import trainparity

SIZES = torch.randint(6, 10, (STEPS * BATCH,)).tolist()
IMAGES = [torch.randn(3, size, 8) for size in SIZES]
BOXES, LABELS = torch.rand(STEPS * BATCH, 4), torch.randint(0, 3, (STEPS * BATCH,))


class Detector(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.features, self.boxes, self.classes = nn.Conv2d(3, 8, 3), nn.Linear(8, 4), nn.Linear(8, 3)

    def forward(self, images: list[Tensor], targets: list[dict[str, Tensor]]) -> dict[str, Tensor]:
        padded = torch.stack([nn.functional.pad(image, (0, 0, 0, 10 - image.shape[1])) for image in images])
        pooled = torch.relu(self.features(padded)).mean((2, 3))
        boxes, labels = torch.stack([t["boxes"] for t in targets]), torch.stack([t["labels"] for t in targets])
        return {
            "loss_box": nn.functional.smooth_l1_loss(self.boxes(pooled), boxes, reduction="sum"),
            "loss_class": nn.functional.cross_entropy(self.classes(pooled), labels, reduction="sum"),
        }


model = Detector()
optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, weight_decay=1e-4)
trainparity.record(model, optimizer, FOLDER)
for rows in batches():
    optimizer.zero_grad()
    for part in parts(rows):
        targets = [{"boxes": BOXES[i], "labels": LABELS[i - 1 if has("bug_labels") else i]} for i in part.tolist()]
        images = [IMAGES[i] for i in part.tolist()]
        if has("bug_twice"):
            images[-1] = images[0]
        losses = model(images, targets)
        ((losses["loss_class"] if has("bug_nobox") else sum(losses.values())) / BATCH).backward()
    optimizer.step()
