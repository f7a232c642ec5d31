import pytest

from trainparity.checking.candidates import CANDIDATES, name, parse
from trainparity.validation import ParamsError


def test_candidates_are_words_with_numbers_joined_by_plus() -> None:
    both = parse("ddp:4+gradaccum:2+compiled")
    assert (both.strategy, both.world_size, both.accumulation_steps, both.compile) == ("ddp", 4, 2, "default")
    assert parse("fsdp-offload").offload == "both"
    assert name("ddp:4+gradaccum:2") == "ddp-4-gradaccum-2"
    for word in CANDIDATES:
        parse(word)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("dpp", "'dpp' is not one of"),
        ("ddp:0", "'0' after ddp; allowed: a number from 1"),
        ("compiled:2", "'2' after compiled; allowed: no number"),
        ("dp:1", "allowed: 2 or more replicas to split a batch over"),
        ("ddp:2+compiled+ddp:4", "'ddp:4' sets strategy, world_size, which 'ddp:2' has set"),
        ("amp-bf16+tf32", "'tf32' sets precision, which 'amp-bf16' has set"),
    ],
)
def test_a_mistake_in_a_candidate_says_what_is_allowed(text: str, message: str) -> None:
    with pytest.raises(ParamsError, match=rf"--against {text.replace('+', '[+]')}: .*{message}"):
        parse(text)
