"""Where on the way of a step runs part that cut the batch differently, of a model that embeds positions."""

from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor, nn

import trainparity
from trainparity.records.verdict import Verdict

STEPS, BATCH, LENGTH, TOKENS = 3, 8, 16, 20
DATA = torch.randint(TOKENS, (STEPS, BATCH, LENGTH), generator=torch.Generator().manual_seed(1))


class Positions(nn.Module):
    """Adds the embeddings of positions [LENGTH, 8] to those of tokens; LENGTH is a multiple of the batch."""

    def __init__(self, function: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.tokens, self.positions = nn.Embedding(TOKENS, 8), nn.Embedding(LENGTH, 8)
        self.inner, self.head = nn.Linear(8, 8), nn.Linear(8, TOKENS)
        self.function = function

    def forward(self, ids: Tensor) -> Tensor:
        embedded = self.tokens(ids) + self.positions(torch.arange(ids.shape[1]))
        output: Tensor = self.head(self.function(self.inner(embedded)))
        return output


def halved(values: Tensor) -> Tensor:
    """Return tanh, whose gradient is halved."""
    found = torch.tanh(values)
    return found / 2 + found.detach() / 2


def train(folder: Path, function: Callable[[Tensor], Tensor] = torch.tanh, cut: int = 1, twins: int = 0) -> Path:
    for twin in range(twins + 1):
        torch.manual_seed(0)
        model = Positions(function)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        with trainparity.record(model, optimizer, folder, twin=twin):
            for ids in DATA:
                optimizer.zero_grad()
                for some in ids.chunk(cut):
                    loss = nn.functional.cross_entropy(model(some).flatten(0, 1), some.roll(-1, 1).flatten())
                    (loss / cut).backward()  # type: ignore[no-untyped-call]
                optimizer.step()
    return folder


def judged(tmp_path: Path, function: Callable[[Tensor], Tensor], cut: int) -> Verdict:
    reference = train(tmp_path / "reference", twins=2)
    return trainparity.compare(reference, train(tmp_path / "other", function, cut))


def test_embeddings_of_positions_are_not_where_runs_part_that_cut_the_batch_differently(tmp_path: Path) -> None:
    assert judged(tmp_path, torch.tanh, 2).verdict == "equivalent"
    found = judged(tmp_path, torch.relu, 2)
    assert (found.cause, found.tensor) == ("forward", "activation head")


def test_nor_is_the_gradient_that_comes_back_to_them(tmp_path: Path) -> None:
    found = judged(tmp_path, halved, 2)
    assert found.cause == "backward"
    assert found.evidence["modules"] == ["tokens", "inner"]
