"""A small classifier of the digits: the workload that a user would bring, as `tests.support.mlp:Mlp`."""

from torch import Tensor, nn
from torch.distributed.tensor.parallel import ColwiseParallel, ParallelStyle, RowwiseParallel

from trainparity.workloads import Batch, SampleRandomness, Section, Workload


class MlpOptions(Section):
    hidden: int = 24
    noise: float = 0.1
    loss_factor: float = 1.0


class Mlp(Workload):
    Options = MlpOptions
    options: MlpOptions

    def build_model(self, sample: Batch) -> nn.Module:
        inputs = sample["images"][0].numel()
        return nn.Sequential(
            nn.Flatten(),
            nn.Linear(inputs, self.options.hidden),
            nn.Tanh(),
            nn.Linear(self.options.hidden, 10),
        )

    def tensor_parallel_plan(self, model: nn.Module) -> dict[str, ParallelStyle]:
        return {"1": ColwiseParallel(), "3": RowwiseParallel()}

    def draw(self, batch: Batch, randomness: SampleRandomness) -> Batch:
        return {"noise": self.options.noise * randomness.normal(*batch["images"].shape[1:])}

    def loss(self, model: nn.Module, batch: Batch) -> Tensor:
        logits = model(batch["images"].float() / 255 + batch["noise"])
        loss = nn.functional.cross_entropy(logits.float(), batch["labels"], reduction="sum")
        return self.options.loss_factor * loss


class Scored(Mlp):
    """The same, and scored on samples held out."""

    def predict(self, model: nn.Module, batch: Batch) -> Tensor:
        scores: Tensor = model(batch["images"].float() / 255)
        return scores
