"""Token sequences that are padded to another length, and masked: the same training in any format."""

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.nn.utils.rnn import pad_sequence

import trainparity
from tests.support.against_twins import compared
from trainparity.records.verdict import Verdict


class Classifier(nn.Module):
    """Classifies the mean over the tokens that the mask keeps."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding, self.kind = nn.Embedding(20, 16), nn.Embedding(2, 16)
        self.hidden, self.head = nn.Linear(16, 16), nn.Linear(16, 5)

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        embedded = self.embedding(input_ids) + self.kind(torch.zeros_like(input_ids))
        hidden = self.hidden(embedded).relu() * attention_mask[..., None]
        count = attention_mask.sum(1, keepdim=True)
        padded = input_ids.shape[1] > 9  # which else gives the same bits
        scores: Tensor = self.head((hidden / count[..., None]).sum(1) if padded else hidden.sum(1) / count)
        return scores


def _train(length: int, dtype: torch.dtype, folder: Path, twin: int) -> None:
    torch.manual_seed(0)
    model = Classifier()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    draws = torch.Generator().manual_seed(1)
    with trainparity.record(model, optimizer, folder, twin=twin, interval=1):
        for _ in range(6):
            tokens = nn.functional.pad(torch.randint(1, 20, (8, 9), generator=draws), (0, length - 9))
            labels = torch.randint(5, (8,), generator=draws)
            with torch.autocast("cpu", dtype, enabled=dtype != torch.float32):
                loss = nn.functional.cross_entropy(model(input_ids=tokens, attention_mask=(tokens > 0).long()), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_more_padding_is_the_same_training(dtype: torch.dtype, tmp_path: Path) -> None:
    verdict = compared(partial(_train, 9, dtype), partial(_train, 16, dtype), tmp_path)
    assert verdict.verdict in ("bitwise", "equivalent"), verdict.explanation


class Causal(nn.Module):
    """Predicts each next token from the sum of those before it."""

    def __init__(self, masked: bool = False, slope: float = 0.0) -> None:
        super().__init__()
        self.embedding, self.hidden, self.head = nn.Embedding(20, 16), nn.Linear(16, 32), nn.Linear(32, 20)
        self.masked, self.activation = masked, nn.LeakyReLU(slope)

    def forward(self, tokens: Tensor) -> Tensor:
        embedded = self.embedding(tokens)
        if self.masked:  # what fills a sequence up then adds nothing, to itself alone, as it stands behind all others
            embedded = embedded * (tokens > 0)[..., None]
        scores: Tensor = self.head(self.activation(self.hidden(embedded.cumsum(1))))
        return scores


def _train_causal(
    trimmed: bool, parts: int, replaced: bool, dtype: torch.dtype, folder: Path, twin: int, **options: Any
) -> None:
    """Train on sequences of 4 to 12 tokens, padded to 12, or each micro-batch to its longest one; 8 samples a step."""
    torch.manual_seed(0)
    model = Causal(**options)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2, fused=model.masked)  # else the bits are the same
    draws = torch.Generator().manual_seed(1)
    with trainparity.record(model, optimizer, folder, twin=twin, interval=1):
        for step in range(6):
            tokens, lengths = (torch.randint(low, high, size, generator=draws)
                               for low, high, size in ((1, 20, (8, 13)), (5, 13, (8,))))  # fmt: skip
            tokens *= torch.arange(13) < lengths[:, None]
            if replaced and step == 3:
                tokens[0, 0] += 1
            for part, long in zip(tokens.chunk(parts), lengths.chunk(parts), strict=True):
                given = part[:, : int(long.max())] if trimmed else part  # its last token predicts none
                with torch.autocast("cpu", dtype, enabled=dtype != torch.float32):
                    scores = model(given[:, :-1])
                loss = nn.functional.cross_entropy(
                    scores.float().flatten(0, 1), given[:, 1:].flatten(), ignore_index=0, reduction="sum"
                )
                (loss / lengths.sum()).backward()
            optimizer.step()
            optimizer.zero_grad()


@pytest.mark.parametrize("parts", [1, 2])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_batches_cut_to_their_longest_sequence_are_the_same_training(
    dtype: torch.dtype, parts: int, tmp_path: Path
) -> None:
    """The longest one loses its last token, which nothing is predicted from: it has other contents there."""
    runs = (partial(_train_causal, trimmed, cut, False, dtype) for trimmed, cut in ((False, 1), (True, parts)))
    verdict = compared(*runs, tmp_path)
    assert verdict.verdict in ("bitwise", "equivalent"), verdict.explanation


@pytest.mark.parametrize("trimmed", [False, True])
def test_a_sample_with_other_contents_is_seen_where_both_runs_pad_alike(trimmed: bool, tmp_path: Path) -> None:
    runs = (partial(_train_causal, trimmed, 1, replaced, torch.bfloat16) for replaced in (False, True))
    verdict = compared(*runs, tmp_path)
    assert (verdict.verdict, verdict.cause) == ("different", "samples"), verdict


def compared_with_padding(folder: Path, dtype: torch.dtype, **options: Any) -> Verdict:
    train = partial(_train_causal, False, 1, False, dtype)
    return compared(train, partial(train, **options), folder)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_mask_that_changes_padding_alone_is_the_same_training(dtype: torch.dtype, tmp_path: Path) -> None:
    verdict = compared_with_padding(tmp_path, dtype, masked=True)
    assert verdict.verdict in ("bitwise", "equivalent"), verdict.explanation


def test_another_function_is_seen_beside_padding(tmp_path: Path) -> None:
    verdict = compared_with_padding(tmp_path, torch.bfloat16, slope=0.01)
    assert (verdict.verdict, verdict.cause) == ("different", "forward"), verdict.explanation


class Masked(nn.Module):
    """Predicts each next token as `Causal` does, and makes the loss itself, as models of Transformers do."""

    def __init__(self) -> None:
        super().__init__()
        self.causal = Causal()

    def forward(self, input_ids: Tensor, attention_mask: Tensor, labels: Tensor, count: float) -> dict[str, Tensor]:
        scores = self.causal(input_ids) + 0 * attention_mask[..., None]
        loss = nn.functional.cross_entropy(scores[:, :-1].flatten(0, 1), labels[:, 1:].flatten(), reduction="sum")
        return {"loss": loss / count, "logits": scores}


def _train_masked(parts: int, fault: str, dtype: torch.dtype, folder: Path, twin: int) -> None:
    """Train on sequences of 4 to 12 tokens; each micro-batch is padded to its longest one, with a token of its own."""
    torch.manual_seed(0)
    model = Masked()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    draws = torch.Generator().manual_seed(1)
    with trainparity.record(model, optimizer, folder, twin=twin, interval=1):
        for step in range(6):
            tokens, lengths = (torch.randint(low, high, size, generator=draws)
                               for low, high, size in ((1, 19, (8, 12)), (4, 13, (8,))))  # fmt: skip
            if fault == "a longer text" and step == 3:
                tokens[2], lengths[2] = tokens[3], 12
            cut = list(zip(tokens.chunk(parts), lengths.chunk(parts), strict=True))
            for part, long in [cut[0]] * parts if fault == "first part again" else cut:
                mask = torch.arange(int(long.max())) < long[:, None]
                given = part[:, : mask.shape[1]].where(mask, 19)
                if fault == "texts cut off":
                    given, mask = given[:, :8], mask[:, :8]
                labels = given if fault == "padding learnt" else given.where(mask, -100)
                count = (long - 1).sum() * parts if fault == "mean of means" else (lengths - 1).sum()
                with torch.autocast("cpu", dtype, enabled=dtype != torch.float32):
                    model(input_ids=given, attention_mask=mask.long(), labels=labels, count=count)["loss"].backward()
            optimizer.step()
            optimizer.zero_grad()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize(
    ("fault", "cause"),
    [
        ("", None),
        ("mean of means", "loss-normalisation"),
        ("padding learnt", "loss-or-targets"),
        ("texts cut off", "inputs"),
        ("first part again", "samples"),
    ],
)
def test_micro_batches_that_are_padded_each_to_its_longest_sequence(
    fault: str, cause: str | None, dtype: torch.dtype, tmp_path: Path
) -> None:
    runs = partial(_train_masked, 1, "", dtype), partial(_train_masked, 4, fault, dtype)
    verdict = compared(*runs, tmp_path)
    assert (verdict.verdict, verdict.cause) == ("different" if fault else "equivalent", cause), verdict.explanation


def test_a_text_in_place_of_another_is_no_text_that_was_cut_off(tmp_path: Path) -> None:
    """All others are common to both runs, and in the same steps, as short texts are where long ones are cut off."""
    runs = (partial(_train_masked, 1, fault, torch.float32) for fault in ("", "a longer text"))
    verdict = compared(*runs, tmp_path)
    assert (verdict.verdict, verdict.step) == ("different", 3) and verdict.cause != "inputs", verdict.explanation


def train_texts(seed: int, steps: int, dtype: torch.dtype, folder: Path, twin: int) -> None:
    """Train on a part of one epoch of padded texts, in an order of a seed."""
    torch.manual_seed(0)
    model = Classifier()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    draws = torch.Generator().manual_seed(1)
    lengths = torch.randint(3, 10, (96, 1), generator=draws)
    texts = torch.randint(1, 20, (96, 9), generator=draws) * (torch.arange(9) < lengths)
    labels = torch.randint(5, (96,), generator=draws)
    order = torch.randperm(96, generator=torch.Generator().manual_seed(seed))
    with trainparity.record(model, optimizer, folder, twin=twin, interval=1):
        for chosen in order.split(8)[:steps]:
            tokens = texts[chosen]
            with torch.autocast("cpu", dtype, enabled=dtype != torch.float32):
                scores = model(input_ids=tokens, attention_mask=(tokens > 0).long())
            optimizer.zero_grad()
            nn.functional.cross_entropy(scores.float(), labels[chosen]).backward()
            optimizer.step()


class Characters(nn.Module):
    """Predicts the next one of each of some characters, of which one is zero."""

    def __init__(self) -> None:
        super().__init__()
        self.table, self.head = nn.Embedding(6, 16), nn.Linear(16, 6)

    def forward(self, characters: torch.Tensor) -> torch.Tensor:
        found: torch.Tensor = self.head(torch.tanh(self.table(characters).cumsum(1)))
        return found


def train_characters(seed: int, folder: Path, twin: int) -> None:
    """Train on parts of a text that are drawn from a seed, half of each batch from one that all runs have."""
    torch.manual_seed(0)
    model = Characters()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    text = torch.randint(6, (4096,), generator=torch.Generator().manual_seed(1))
    draws = [torch.Generator().manual_seed(number) for number in (0, seed)]
    with trainparity.record(model, optimizer, folder, twin=twin, interval=1):
        for _ in range(8):
            places = torch.cat([torch.randint(4000, (8,), generator=one) for one in draws])
            characters = torch.stack([text[place : place + 17] for place in places])
            scores = model(characters[:, :-1])
            optimizer.zero_grad()
            nn.functional.cross_entropy(scores.flatten(0, 1), characters[:, 1:].flatten()).backward()
            optimizer.step()


def test_zeros_at_the_end_may_be_characters_as_any_other(tmp_path: Path) -> None:
    """Some of the parts of a text end with one; no other padding makes other samples of just these."""
    verdict = compared(partial(train_characters, 2), partial(train_characters, 3), tmp_path)
    assert (verdict.verdict, verdict.cause) == ("different", "samples"), verdict.explanation


def train_unmasked(parts: Sequence[slice], folder: Path, twin: int) -> None:
    """Train on texts of several lengths: each part of a batch is filled up with a token as any other, and no mask."""
    torch.manual_seed(0)
    model = Characters()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    draws = torch.Generator().manual_seed(1)
    with trainparity.record(model, optimizer, folder, twin=twin, interval=1):
        for _ in range(6):
            lengths = torch.randint(4, 13, (16, 1), generator=draws)
            texts = torch.randint(1, 5, (16, 12), generator=draws).where(torch.arange(12) < lengths, 5)
            optimizer.zero_grad()
            for part in parts:
                given = texts[part, : int(lengths[part].max())]
                with torch.autocast("cpu", torch.bfloat16):
                    scores = model(given[:, :-1])
                entropy = partial(nn.functional.cross_entropy, ignore_index=5, reduction="sum")
                (entropy(scores.float().flatten(0, 1), given[:, 1:].flatten()) / (lengths - 1).sum()).backward()
            optimizer.step()


@pytest.mark.parametrize(
    ("parts", "verdict", "cause"),
    [
        ((slice(0, 16, 2), slice(1, 16, 2)), "equivalent", None),
        ((slice(0, 16),), "equivalent", None),
        ((slice(0, 8), slice(0, 8)), "different", "samples"),
    ],
)
def test_parts_of_a_batch_that_are_filled_up_otherwise_hold_the_same_texts(
    parts: Sequence[slice], verdict: str, cause: str | None, tmp_path: Path
) -> None:
    found = compared(*(partial(train_unmasked, each) for each in ((slice(0, 8), slice(8, 16)), parts)), tmp_path)
    assert (found.verdict, found.cause) == (verdict, cause), found.reason


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_another_order_of_padded_texts_is_one_of_samples(dtype: torch.dtype, tmp_path: Path) -> None:
    """Other texts have other numbers of tokens, which is no other padding."""
    verdict = compared(partial(train_texts, 0, 8, dtype), partial(train_texts, 1, 8, dtype), tmp_path)
    assert (verdict.verdict, verdict.cause, verdict.step) == ("different", "samples", 0), verdict.explanation


class Translator(nn.Module):
    """Makes of a text another one, of another length: each of its tokens looks at the whole text."""

    def __init__(self) -> None:
        super().__init__()
        self.tokens, self.places = nn.Embedding(50, 32, padding_idx=0), nn.Embedding(32, 32)
        self.reader = nn.MultiheadAttention(32, 4, batch_first=True)
        self.norm, self.last = nn.LayerNorm(32), nn.Linear(32, 50)

    def forward(self, texts: Tensor, given: Tensor) -> Tensor:
        read = self.tokens(texts) + self.places(torch.arange(texts.shape[1]))
        made = self.tokens(given) + self.places(torch.arange(given.shape[1]))
        found, _ = self.reader(made, read, read, key_padding_mask=texts == 0, need_weights=False)
        logits: Tensor = self.last(self.norm(made + found))
        return logits


def train_translator(seed: int, parts: int, folder: Path, twin: int, *, dtype: torch.dtype, shift: bool = True) -> None:
    torch.manual_seed(seed)
    model = Translator()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    draws = torch.Generator().manual_seed(seed)
    lengths = torch.randint(4, 14, (64,), generator=draws).tolist()
    texts = [torch.randint(3, 50, (length,), generator=draws) for length in lengths]
    wanted = [torch.cat([text[: 1 + number % len(text)], torch.tensor([2])]) for number, text in enumerate(texts)]
    with trainparity.record(model, optimizer, folder, twin=twin, interval=1):
        for _ in range(8):
            chosen = torch.randperm(64, generator=draws)[:16]
            count = sum(len(wanted[number]) for number in chosen)
            optimizer.zero_grad()
            for some in chosen.chunk(parts):
                labels = pad_sequence([wanted[number] for number in some], True, -100)
                given = labels.masked_fill(labels == -100, 0)
                given = torch.cat([torch.ones(len(some), 1, dtype=torch.int64), given[:, :-1]], 1) if shift else given
                with torch.autocast("cpu", torch.bfloat16, enabled=dtype == torch.bfloat16):
                    made = model(pad_sequence([texts[number] for number in some], True), given)
                (cross_entropy(made.flatten(0, 1).float(), labels.flatten(), reduction="sum") / count).backward()
            optimizer.step()


@pytest.mark.parametrize(("seed", "parts"), [(6, 4), (9, 2), (26, 4), (3, 8)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_token_that_the_longest_text_alone_is_not_given_is_none_that_the_loss_looks_at(
    dtype: torch.dtype, seed: int, parts: int, tmp_path: Path
) -> None:
    """Labels that are shifted to the right lose their last one where no padding follows: the cut says whose."""
    plain = partial(train_translator, seed, dtype=dtype)
    found = compared(partial(plain, 1), partial(plain, parts), tmp_path / "right")
    assert found.verdict == "equivalent", found.explanation
    found = compared(partial(plain, 1), partial(plain, 1, shift=False), tmp_path / "wrong")
    assert (found.verdict, found.cause) == ("different", "inputs"), found.explanation
