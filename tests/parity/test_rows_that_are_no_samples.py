"""Rows inside of a model need be no samples: time may come first, and a packed sequence has a row for each step."""

from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

import trainparity
from tests.support.against_twins import compared
from trainparity.records.verdict import Verdict

SAMPLES, TIME = 32, 32
LENGTHS = 2 * (torch.arange(SAMPLES) % 16) + 2
"""Their sum is a multiple of the number of samples, as if each had 17 rows."""


class TimeFirst(nn.Module):
    """A recurrent classifier that puts time first inside."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding, self.recurrent, self.head = nn.Embedding(20, 32), nn.GRU(32, 32), nn.Linear(32, 5)

    def forward(self, tokens: Tensor, lengths: Tensor) -> Tensor:
        scores: Tensor = self.head(self.recurrent(self.embedding(tokens).transpose(0, 1))[0].mean(0))
        return scores


class Packed(TimeFirst):
    """One whose recurrent layer is given the steps of all sequences in one tensor."""

    def forward(self, tokens: Tensor, lengths: Tensor) -> Tensor:
        packed = pack_padded_sequence(self.embedding(tokens).transpose(0, 1), lengths, enforce_sorted=False)
        scores: Tensor = self.head(pad_packed_sequence(self.recurrent(packed)[0])[0].mean(0))
        return scores


def _train(make: Callable[[], nn.Module], backwards: bool, smoothing: float, folder: Path, twin: int) -> None:
    """Train under bf16, where asked on each batch from its last sample to its first one."""
    torch.manual_seed(0)
    model = make()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    draws = torch.Generator().manual_seed(1)
    with trainparity.record(model, optimizer, folder, twin=twin, interval=1):
        for _ in range(4):
            batch = [torch.randint(20, (SAMPLES, TIME), generator=draws), LENGTHS, torch.arange(SAMPLES) % 5]
            tokens, lengths, labels = (values.flip(0) if backwards else values for values in batch)
            with torch.autocast("cpu", torch.bfloat16):
                scores = model(tokens, lengths)
            loss = nn.functional.cross_entropy(scores.float(), labels, label_smoothing=smoothing)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()


def judged(make: Callable[[], nn.Module], smoothing: float, folder: Path) -> Verdict:
    """Compare with the same batches in another order, and labels smoothed otherwise."""
    return compared(partial(_train, make, False, 0.1), partial(_train, make, True, smoothing), folder)


@pytest.mark.parametrize("make", [TimeFirst, Packed])
def test_another_order_of_the_samples_is_the_same_training(make: Callable[[], nn.Module], tmp_path: Path) -> None:
    verdict = judged(make, 0.1, tmp_path)
    assert verdict.verdict == "equivalent", verdict.explanation


@pytest.mark.parametrize("make", [TimeFirst, Packed])
def test_another_loss_is_seen_in_another_order_of_the_samples(make: Callable[[], nn.Module], tmp_path: Path) -> None:
    verdict = judged(make, 0.12, tmp_path)
    assert (verdict.verdict, verdict.cause) == ("different", "loss-or-targets"), verdict.explanation


class OfCrops(nn.Module):
    """Classifies two crops of each image in one pass, all first ones before all second ones, as DINO's student does."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(6, 32), nn.Tanh(), nn.Linear(32, 5))

    def forward(self, crops: list[Tensor]) -> Tensor:
        scores: Tensor = self.body(torch.cat(crops))
        return scores


def _train_crops(parts: int, smoothing: Callable[[int], float], folder: Path, twin: int) -> None:
    torch.manual_seed(0)
    model = OfCrops()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    draws = torch.Generator().manual_seed(1)
    with trainparity.record(model, optimizer, folder, twin=twin, interval=1):
        for step in range(4):
            optimizer.zero_grad()
            images, labels = torch.randn(SAMPLES, 6, generator=draws), torch.arange(SAMPLES) % 5
            for part, wanted in zip(images.chunk(parts), labels.chunk(parts), strict=True):
                scores = model([part, part + 0.1])
                loss = nn.functional.cross_entropy(scores, wanted.repeat(2), label_smoothing=smoothing(step))
                (loss / parts).backward()
            optimizer.step()


def test_crops_that_pass_one_kind_after_the_other_prove_no_other_forward_pass(tmp_path: Path) -> None:
    right = partial(_train_crops, 1, lambda step: 0.0)
    for smoothed, expected in ((lambda step: 0.0, "equivalent"), (lambda step: 0.1 * (step > 1), "different")):
        verdict = compared(right, partial(_train_crops, 2, smoothed), tmp_path / expected)
        assert verdict.verdict == expected, verdict.explanation
        assert verdict.cause != "forward", verdict.explanation


class Decoder(nn.Module):
    """Puts time first: what it returns looks like a row for each sample in steps of as many tokens alone."""

    def __init__(self, positions: bool) -> None:
        super().__init__()
        self.embedding, self.positions, self.head = nn.Embedding(20, 16), nn.Embedding(TIME, 16), nn.Linear(16, 20)
        self.uses_positions = positions

    def forward(self, tokens: Tensor, targets: Tensor) -> Tensor:
        made = self.embedding(targets)
        if self.uses_positions:
            made = made + self.positions(torch.arange(len(targets)))[:, None]
        scores: Tensor = self.head(made + self.embedding(tokens).mean(0))
        return scores


def _train_decoder(positions: bool, folder: Path, twin: int) -> None:
    torch.manual_seed(0)
    model = Decoder(positions)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    draws = torch.Generator().manual_seed(1)
    with trainparity.record(model, optimizer, folder, twin=twin, interval=1):
        for step in range(4):
            optimizer.zero_grad()
            tokens, targets = (torch.randint(20, (long, 4), generator=draws) for long in (8, 9 if step > 1 else 8))
            nn.functional.cross_entropy(model(tokens, targets[:-1]).flatten(0, 1), targets[1:].flatten()).backward()
            optimizer.step()


def test_outputs_that_were_not_seen_in_a_step_are_not_known_to_agree(tmp_path: Path) -> None:
    verdict = compared(partial(_train_decoder, True), partial(_train_decoder, False), tmp_path)
    assert verdict.verdict == "different"
    assert verdict.cause != "loss-or-targets", verdict.explanation


class OfLetters(nn.Module):
    """A recurrent classifier of words that are given with time first: [time, words]."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding, self.recurrent, self.head = nn.Embedding(20, 32), nn.RNN(32, 32), nn.Linear(32, 5)

    def forward(self, letters: Tensor) -> Tensor:
        scores: Tensor = self.head(self.recurrent(self.embedding(letters))[1][0])
        return scores


def _words(by_length: bool, draws: torch.Generator) -> list[tuple[Tensor, Tensor]]:
    """Draw 12 words, each to pass alone or with those of its length."""
    words = [torch.randint(20, (3 + min(number, 9),), generator=draws) for number in range(12)]
    alone = [[number] for number in range(12)]
    groups = [*alone[:9], [9, 10, 11]] if by_length else alone
    return [(torch.stack([words[n] for n in group], 1), torch.tensor([n % 5 for n in group])) for group in groups]


def _words_of_one_length(again: bool, draws: torch.Generator) -> list[tuple[Tensor, Tensor]]:
    """Draw 12 words of one length; where asked the first comes again, in place of the second."""
    words = torch.randint(20, (7, 12), generator=draws)
    if again:
        words[:, 1] = words[:, 0]
    return [(words, torch.arange(12) % 5)]


def _train_on(draw: Callable[[torch.Generator], list[tuple[Tensor, Tensor]]], folder: Path, twin: int) -> None:
    """Train under bf16 on 12 words a step, in as many passes as they are drawn in."""
    torch.manual_seed(0)
    model = OfLetters()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    draws = torch.Generator().manual_seed(1)
    with trainparity.record(model, optimizer, folder, twin=twin, interval=1):
        for _ in range(4):
            optimizer.zero_grad()
            for letters, labels in draw(draws):
                with torch.autocast("cpu", torch.bfloat16):
                    scores = model(letters)
                (nn.functional.cross_entropy(scores.float(), labels, reduction="sum") / 12).backward()
            optimizer.step()


def test_words_of_one_length_that_pass_together_are_the_same_words(tmp_path: Path) -> None:
    verdict = compared(*(partial(_train_on, partial(_words, by_length)) for by_length in (False, True)), tmp_path)
    assert verdict.verdict == "equivalent", verdict.explanation


def test_a_word_that_is_another_one_is_seen_where_time_comes_first(tmp_path: Path) -> None:
    verdict = compared(*(partial(_train_on, partial(_words_of_one_length, again)) for again in (False, True)), tmp_path)
    assert verdict.verdict == "different"


class OfGraphs(nn.Module):
    """Classifies graphs: it is given their nodes, and returns a row for each graph."""

    def __init__(self, spread: float) -> None:
        super().__init__()
        self.spread = spread
        self.nodes, self.head = nn.Linear(6, 32), nn.Linear(32, 5)

    def forward(self, nodes: Tensor, graphs: Tensor) -> Tensor:
        made = torch.tanh(self.nodes(nodes))
        scores: Tensor = self.head(made.new_zeros(int(graphs.max()) + 1, 32).index_add(0, graphs, made))
        return self.spread * scores


def _train_on_graphs(
    parts: int, smoothing: float, scale: float, spread: float, coarse: bool, folder: Path, twin: int
) -> None:
    """Train on 12 graphs a step, of 3 to 7 nodes each, in so many passes."""
    torch.manual_seed(0)
    model = OfGraphs(spread)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    draws = torch.Generator().manual_seed(1)
    with trainparity.record(model, optimizer, folder, twin=twin, interval=1):
        for _ in range(4):
            optimizer.zero_grad()
            nodes = [torch.randn(3 + number % 5, 6, generator=draws) for number in range(12)]
            for part in torch.arange(12).chunk(parts):
                graphs = torch.cat([torch.full((len(nodes[n]),), i) for i, n in enumerate(part.tolist())])
                with torch.autocast("cpu", torch.bfloat16, enabled=coarse):
                    scores = model(torch.cat([nodes[n] for n in part]), graphs).float()
                loss = nn.functional.cross_entropy(scores, part % 5, reduction="sum", label_smoothing=smoothing)
                (scale * loss / 12).backward()
            optimizer.step()


GRAPHS = {
    "other passes": ((3, 0.0, 1.0, 1.0), "equivalent", None),
    "another loss": ((1, 0.1, 1.0, 1.0), "different", "loss-or-targets"),
    "another loss, other passes": ((3, 0.1, 1.0, 1.0), "different", "loss-or-targets"),
    "another scale": ((1, 0.0, 1.5, 1.0), "different", "loss-normalisation"),
    "another scale, other passes": ((3, 0.0, 1.5, 1.0), "different", "loss-normalisation"),
    "another function": ((1, 0.0, 1.0, 1.5), "different", "forward"),
    "another function, other passes": ((3, 0.0, 1.0, 1.5), "different", "forward"),
}


@pytest.mark.parametrize("coarse", [False, True])
@pytest.mark.parametrize("case", GRAPHS)
def test_what_a_model_returns_for_each_graph_is_looked_at(case: str, coarse: bool, tmp_path: Path) -> None:
    settings, verdict, cause = GRAPHS[case]
    found = compared(*(partial(_train_on_graphs, *each, coarse) for each in ((1, 0.0, 1.0, 1.0), settings)), tmp_path)
    assert (found.verdict, found.cause) == (verdict, cause), found.explanation


def _train_on_sequences(
    steps: int, parts: int, moved: int, function: Callable[[Tensor], Tensor], coarse: bool, folder: Path, twin: int
) -> None:
    """Train on 12 sequences [steps, 12] a step in so many passes; labels are moved by so many places."""

    class OfSteps(OfLetters):
        def forward(self, letters: Tensor) -> Tensor:
            scores: Tensor = self.head(function(self.recurrent(self.embedding(letters))[1][0]))
            return scores

    torch.manual_seed(0)
    model = OfSteps()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    draws = torch.Generator().manual_seed(1)
    with trainparity.record(model, optimizer, folder, twin=twin, interval=1):
        for _ in range(4):
            optimizer.zero_grad()
            letters, labels = torch.randint(20, (steps, 12), generator=draws), torch.randint(5, (12,), generator=draws)
            for part, wanted in zip(letters.chunk(parts, 1), labels.roll(moved).chunk(parts), strict=True):
                with torch.autocast("cpu", torch.bfloat16, enabled=coarse):
                    scores = model(part)
                (nn.functional.cross_entropy(scores.float(), wanted, reduction="sum") / 12).backward()
            optimizer.step()


SEQUENCES: dict[str, tuple[tuple[int, Callable[[Tensor], Tensor]], str | None]] = {
    "the same": ((0, torch.tanh), None),
    "other targets": ((1, torch.tanh), "loss-or-targets"),
    "another function": ((0, torch.relu), "forward"),
}


@pytest.mark.parametrize("coarse", [False, True])
@pytest.mark.parametrize("steps", [9, 12])  # as many as samples, too
@pytest.mark.parametrize("parts", [1, 3])
@pytest.mark.parametrize("case", SEQUENCES)
def test_a_model_that_is_given_time_first_has_samples_too(
    case: str, parts: int, steps: int, coarse: bool, tmp_path: Path
) -> None:
    settings, cause = SEQUENCES[case]
    right = partial(_train_on_sequences, steps, 1, 0, torch.tanh, coarse)
    found = compared(right, partial(_train_on_sequences, steps, parts, *settings, coarse), tmp_path)
    assert found.verdict in (("different",) if cause else ("bitwise", "equivalent")), found.explanation
    assert found.cause == cause, found.explanation


class OfWindows(nn.Module):
    """A recurrent regression of windows [samples, time, 3], whose layer may take time for samples."""

    def __init__(self, batch_first: bool) -> None:
        super().__init__()
        self.recurrent, self.head = nn.GRU(3, 16, batch_first=batch_first), nn.Linear(16, 1)

    def forward(self, windows: Tensor) -> Tensor:
        value: Tensor = self.head(self.recurrent(windows)[0][:, -1])
        return value


def _train_on_windows(batch_first: bool, folder: Path, twin: int) -> None:
    torch.manual_seed(0)
    model = OfWindows(batch_first)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    draws = torch.Generator().manual_seed(1)
    with trainparity.record(model, optimizer, folder, twin=twin, interval=1):
        for _ in range(4):
            optimizer.zero_grad()
            model(torch.randn(12, 9, 3, generator=draws)).square().mean().backward()
            optimizer.step()


def test_a_layer_that_takes_time_for_samples_is_another_function(tmp_path: Path) -> None:
    for right in (True, False):
        runs = (partial(_train_on_windows, batch_first) for batch_first in (right, not right))
        verdict = compared(*runs, tmp_path / str(right))
        assert (verdict.verdict, verdict.cause) == ("different", "forward"), verdict.explanation


class OneOfGraph(nn.Module):
    """Returns a number for each graph of a batch that it is given by its nodes."""

    def __init__(self) -> None:
        super().__init__()
        self.body, self.head = nn.Sequential(nn.Linear(6, 16), nn.ReLU()), nn.Linear(16, 1)

    def forward(self, nodes: Tensor, graph: Tensor) -> Tensor:
        made: Tensor = self.head(torch.zeros(int(graph[-1]) + 1, 16).index_add(0, graph, self.body(nodes)))
        return made.squeeze(1)


def _train_one_of_graph(parts: int, loss: Callable[[Tensor, Tensor], Tensor], folder: Path, twin: int) -> None:
    torch.manual_seed(0)
    model = OneOfGraph()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    draws = torch.Generator().manual_seed(1)
    with trainparity.record(model, optimizer, folder, twin=twin, interval=1):
        for _ in range(4):
            optimizer.zero_grad()
            graph = torch.arange(SAMPLES // 2).repeat_interleave(3 + torch.arange(SAMPLES // 2) % 4)
            nodes, wanted = torch.rand(len(graph), 6, generator=draws), torch.rand(SAMPLES // 2, generator=draws)
            for of_part in torch.arange(SAMPLES // 2).chunk(parts):
                chosen = torch.isin(graph, of_part)
                (loss(model(nodes[chosen], graph[chosen] - of_part[0]), wanted[of_part]) / parts).backward()
            optimizer.step()


def test_as_many_passes_as_what_they_return_has_sums_are_no_proof_of_other_weights(tmp_path: Path) -> None:
    squares, absolute = nn.functional.mse_loss, nn.functional.l1_loss
    verdict = compared(partial(_train_one_of_graph, 1, squares), partial(_train_one_of_graph, 4, absolute), tmp_path)
    assert (verdict.verdict, verdict.cause) == ("different", "loss-or-targets"), verdict.explanation
