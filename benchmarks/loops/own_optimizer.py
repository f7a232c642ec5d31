"""In the shape of a speed record's script: an optimizer of its own for matrices, SGD for the rest of one model."""

import torch
from shape import BATCH, FOLDER, STEPS, batches, has, parts
from torch import Tensor, nn

import trainparity

IMAGES, LABELS = torch.randn(STEPS * BATCH, 3, 8, 8), torch.randint(0, 5, (STEPS * BATCH,))


def orthogonal(matrix: Tensor) -> Tensor:
    """Bring all singular values near to one, by an iteration in bf16."""
    found = matrix.bfloat16() / (matrix.norm() + 1e-7)
    for _ in range(5 if has("bug_iterations") else 3):
        square = found @ found.T
        found = 3.4445 * found + (-4.775 * square + 2.0315 * square @ square) @ found
    return found


class Orthogonal(torch.optim.Optimizer):
    """Momentum, then the nearest orthogonal matrix; weights keep their length."""

    def __init__(self, parameters: list[nn.Parameter], lr: float, momentum: float) -> None:
        super().__init__(parameters, {"lr": lr, "momentum": momentum})

    def step(self, closure: None = None) -> None:  # type: ignore[override]
        for group in self.param_groups:
            for parameter in group["params"]:
                kept = self.state[parameter].setdefault("momentum", torch.zeros_like(parameter))
                kept.mul_(group["momentum"]).add_(parameter.grad)
                if not has("bug_length"):
                    parameter.data.mul_(len(parameter) ** 0.5 / parameter.data.norm())
                update = orthogonal(kept.reshape(len(kept), -1)).view_as(parameter)
                parameter.data.add_(update, alpha=-group["lr"])


model = nn.Sequential(
    nn.Conv2d(3, 8, 3, padding=1, bias=False), nn.GroupNorm(2, 8), nn.GELU(),
    nn.Conv2d(8, 12, 3, stride=2, bias=False), nn.GELU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(12, 5),
)  # fmt: skip
matrices = [parameter for parameter in model.parameters() if parameter.ndim == 4]
others = [parameter for parameter in model.parameters() if parameter.ndim < 4]
plain = torch.optim.SGD(others, lr=0.05, momentum=0.85, nesterov=not has("bug_nesterov"), fused=has("fused"))
own = Orthogonal(matrices, lr=0.1 if has("bug_rate") else 0.2, momentum=0.6)
trainparity.record(model, plain, FOLDER)
trainparity.record(model, own, FOLDER, name="matrices")
for rows in batches():
    for part in parts(rows):
        smoothing = 0.0 if has("bug_smoothing") else 0.2
        nn.functional.cross_entropy(
            model(IMAGES[part]), LABELS[part], label_smoothing=smoothing, reduction="sum"
        ).backward()
    for optimizer in (plain, own):
        optimizer.step()
    model.zero_grad()
