import pytest

from trainparity.records.later_steps import JudgedBy, LaterSteps, sentences

ADVICE = "to compare these steps too, record every step (`interval=1`, or `trainparity run --interval 1`)"


@pytest.mark.parametrize(
    ("last", "judged_by", "because", "said"),
    [
        (23, "weights at the end", None, "compared by the weights at the end alone: steps 8 to 23"),
        (23, "weights at the end", "gone", "compared by the weights at the end alone: steps 8 to 23: gone"),
        (8, "nothing", "gone", "NOT compared: step 8: gone"),
        (None, "nothing", "gone", "NOT compared: the steps from 8 on: gone"),
    ],
)
def test_what_judges_later_steps_is_said(last: int | None, judged_by: JudgedBy, because: str | None, said: str) -> None:
    later = LaterSteps(first=8, last=last, judged_by=judged_by, because=because)
    assert later.sentence(bitwise=True) == said
    of_a_model = later.model_copy(update={"model": "G"}).sentence(bitwise=True)
    assert of_a_model.replace(" of the model G", "", 1) == said != of_a_model


def test_where_bits_differ_at_the_end_the_floor_is_named() -> None:
    later = LaterSteps(first=8, last=23, judged_by="weights at the end")
    hidden = "a fault within the noise floor of these weights is not seen"
    assert later.sentence(bitwise=False) == f"{later.sentence(bitwise=True)}: {hidden}"


def test_what_to_do_is_said_once_and_not_where_recording_ended() -> None:
    several = [LaterSteps(first=first, last=first + 1, judged_by="nothing") for first in (8, 10)]
    endless = LaterSteps(first=12, last=None, judged_by="nothing", because="the model has other parameters")
    assert sentences([*several, endless], bitwise=True)[3:] == [ADVICE]
    assert sentences([endless], bitwise=True) == [endless.sentence(bitwise=True)]
    assert sentences([], bitwise=True) == []
