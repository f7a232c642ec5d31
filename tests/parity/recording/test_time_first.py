"""Whether a model is given time first is told by its layers, and what it returns is turned then."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence

from trainparity.parity.recording.time_first import TimeFirst, batch_first

STEPS, BATCH, FEATURES = 7, 4, 3


def told(layer: nn.Module, given: Tensor, taken: object, returned: tuple[int, ...] = (BATCH, 5)) -> bool | None:
    found = TimeFirst(nn.Sequential(layer))
    found.look(layer, (taken,), given)
    decided = found.decide([torch.zeros(returned, requires_grad=True)], given)
    assert decided == bool(found.known)
    return found.known


MODELS_OWN: dict[str, Callable[[Tensor], Tensor]] = {
    "as it is": lambda given: given,
    "shorter": lambda given: given[2:],
    "embedded": lambda given: given * 2,
}


@pytest.mark.parametrize("steps", [STEPS, BATCH])
@pytest.mark.parametrize("what", MODELS_OWN)
@pytest.mark.parametrize("layer", [nn.GRU(FEATURES, 5), nn.MultiheadAttention(FEATURES, 1)])
def test_a_layer_that_is_given_as_many_sequences_as_the_second_dimension_has(
    layer: nn.Module, what: str, steps: int
) -> None:
    given = torch.randn(steps, BATCH, FEATURES)
    assert told(layer, given, MODELS_OWN[what](given)) is True
    other_way = given.transpose(0, 1).contiguous()
    assert told(layer, other_way, MODELS_OWN[what](other_way.transpose(0, 1))) is False


@pytest.mark.parametrize("steps", [STEPS, BATCH])
def test_a_packed_sequence_tells_it_too(steps: int) -> None:
    given, layer = torch.randn(steps, BATCH, FEATURES), nn.GRU(FEATURES, 5)
    lengths = torch.tensor([steps, 2, 4, 3])
    assert told(layer, given, pack_padded_sequence(given, lengths, enforce_sorted=False)) is True
    given = given.transpose(0, 1)
    packed = pack_padded_sequence(given, lengths, batch_first=True, enforce_sorted=False)
    assert told(layer, given, packed) is False


@pytest.mark.parametrize(
    ("returned", "time_first"),
    [((BATCH, 5), True), ((STEPS, 5), False), ((STEPS, BATCH, 5), False), ((STEPS + 1, BATCH, 5), True), ((5,), False)],
)
def test_samples_that_a_layer_is_given_first_by_mistake_are_told_by_what_is_returned(
    returned: tuple[int, ...], time_first: bool
) -> None:
    given = torch.randn(STEPS, BATCH, FEATURES)
    assert told(nn.GRU(FEATURES, 5), given, given, returned) is time_first


@pytest.mark.parametrize(("steps", "batch"), [(STEPS, BATCH), (BATCH, STEPS), (BATCH, BATCH)])
@pytest.mark.parametrize("masked", [True, False])
def test_a_mask_over_steps_tells_a_language_model_that_returns_as_many(masked: bool, steps: int, batch: int) -> None:
    """Of a layer that is given samples first by mistake it would not fit."""
    layer, tokens = nn.MultiheadAttention(FEATURES, 1), torch.zeros(steps, batch, dtype=torch.int64)
    found, taken = TimeFirst(layer), torch.randn(steps, batch, FEATURES)
    found.look(layer, (taken, taken, taken), tokens, {"attn_mask": torch.zeros(steps, steps) if masked else None})
    returned = torch.zeros(steps, batch, 5, requires_grad=True)
    assert found.decide([returned], tokens) is (batch == steps or masked)


def test_a_mask_that_a_layer_of_layers_is_given_by_its_place_tells_it() -> None:
    model = nn.Transformer(FEATURES, 1, 1, 1, 5)
    found, taken = TimeFirst(model), torch.randn(STEPS, BATCH, FEATURES)
    tokens, mask = torch.zeros(STEPS, BATCH, dtype=torch.int64), torch.zeros(STEPS, STEPS)
    found.look(model, (taken, taken, mask, mask), tokens)
    assert found.decide([torch.zeros(STEPS, BATCH, 5, requires_grad=True)], tokens) is True


@pytest.mark.parametrize("turned", [True, False])
def test_of_as_many_sequences_as_steps_keys_tell_where_queries_are_normalised(turned: bool) -> None:
    """As in SASRec (Kang and McAuley, 2018), which turns samples first and gives attention LayerNorm's queries."""
    layer, tokens = nn.MultiheadAttention(FEATURES, 1), torch.zeros(BATCH, BATCH, dtype=torch.int64)
    found, made = TimeFirst(layer), torch.randn(BATCH, BATCH, FEATURES)
    made = made.transpose(0, 1) if turned else made
    found.look(layer, (nn.LayerNorm(FEATURES)(made), made, made), tokens)
    assert found.decide([torch.zeros(BATCH, BATCH, 5, requires_grad=True)], tokens) is not turned


def test_without_such_a_layer_samples_are_rows_and_a_vector_leaves_it_open() -> None:
    assert TimeFirst(nn.Sequential(nn.Linear(3, 3), nn.GRU(3, 3, batch_first=True))).known is False
    layer = nn.GRU(FEATURES, 5)
    assert told(layer, torch.randn(BATCH), torch.randn(STEPS, BATCH, FEATURES)) is None


@pytest.mark.parametrize(("returned", "time_first"), [((BATCH, 5), True), ((STEPS, 5), False)])
def test_where_no_layer_is_seen_what_is_returned_tells_it_alone(returned: tuple[int, ...], time_first: bool) -> None:
    """As where it is compiled."""
    assert told(nn.GRU(FEATURES, 5), torch.randn(STEPS, BATCH, FEATURES), None, returned) is time_first


@pytest.mark.parametrize(
    ("shape", "turned"),
    [
        ((STEPS, BATCH, FEATURES), (BATCH, STEPS, FEATURES)),
        ((STEPS * BATCH, FEATURES), (BATCH, STEPS, FEATURES)),
        ((2, BATCH, 5), (BATCH, 2, 5)),
        ((BATCH, 5), (BATCH, 5)),
        ((BATCH, BATCH), (BATCH, BATCH)),
        ((STEPS, 5), (STEPS, 5)),
        ((BATCH,), (BATCH,)),
    ],
)
def test_what_has_samples_is_turned(shape: tuple[int, ...], turned: tuple[int, ...]) -> None:
    assert batch_first(torch.zeros(shape), BATCH).shape == turned


def test_square_tokens_are_turned_and_flat_ones_keep_their_samples_apart() -> None:
    tokens = torch.arange(BATCH * BATCH).view(BATCH, BATCH)
    assert torch.equal(batch_first(tokens, BATCH), tokens.T)
    steps = torch.arange(STEPS * BATCH).view(STEPS, BATCH)
    assert torch.equal(batch_first(steps.flatten(), BATCH), steps.T)
