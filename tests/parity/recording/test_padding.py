"""Which tokens are a sample's own, and which fill a batch up."""

import pytest
import torch
from torch.nn import functional

from trainparity.parity.recording.padding import Tokens
from trainparity.parity.recording.signs import Signs

TOKENS = torch.tensor([[5, 0, 7, 0], [3, 0, 0, 0]])


def test_zeros_behind_the_last_token_are_no_sample_s_own() -> None:
    tokens = Tokens.of(TOKENS)
    assert tokens is not None
    rows = tokens.own_alone(torch.full((2, 8), torch.nan))  # as attention to nothing leaves there
    assert rows.isnan().tolist() == [[True] * 6 + [False] * 2, [True] * 2 + [False] * 6]
    assert tokens.own_numbers(torch.ones(2, 4, 3)) == 12


def test_a_sample_of_zeros_is_its_own() -> None:
    tokens = Tokens.of(torch.tensor([[1, 0], [0, 0]]))
    assert tokens is not None
    assert tokens.own_alone(torch.ones(2, 2)).tolist() == [[1, 0], [1, 1]]


def test_what_has_a_row_for_each_token() -> None:
    tokens = Tokens.of(TOKENS)
    assert tokens is not None
    shapes = {(2, 4, 3): 3, (8, 5): 5, (2, 3, 4): 0, (2, 4): 0, (4, 2): 0, (8,): 0}
    assert {shape: tokens.width(torch.ones(shape)) for shape in shapes} == shapes
    assert tokens.width(TOKENS) == 1


def test_pixels_and_labels_are_no_tokens() -> None:
    assert Tokens.of(torch.zeros(2, 4)) is None
    assert Tokens.of(torch.zeros(2, dtype=torch.int64)) is None
    assert Tokens.of(torch.zeros(2, 4, dtype=torch.uint8)) is None


def test_an_attention_mask_tells_what_is_padding_in_front() -> None:
    tokens = Tokens.of(torch.tensor([[0, 0, 7, 0]]), torch.tensor([[0, 1, 1, 1]]))
    assert tokens is not None
    assert tokens.own_alone(torch.ones(1, 4)).tolist() == [[0, 1, 1, 1]]


@pytest.mark.parametrize("flat", [False, True])
def test_padding_that_follows_a_decoders_tokens_changes_no_sum(flat: bool) -> None:
    """A text's own length is another one than that of what is made of it."""
    given = torch.randint(1, 9, (4, 13))
    made = torch.randn(4, 7, 50)
    signs = Signs(torch.arange(4), Tokens.of(given))
    longer = functional.pad(made, (0, 0, 0, 40))
    few, many = (signs.sum(each.flatten(0, 1) if flat else each, own_alone=False) for each in (made, longer))
    assert few is not None and many is not None
    assert torch.equal(few, many[: len(few)]) and not many[len(few) :].any()
