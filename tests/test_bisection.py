from hypothesis import given
from hypothesis import strategies as st

from trainparity.bisection import bisect
from trainparity.records.verdict import Outcome

FOUR = ["ddp:2", "gradaccum:2", "compiled", "amp-bf16"]


def judging(*faults: set[str]) -> tuple[list[tuple[str, ...]], object]:
    """Return the sets that were tried and a judge to whom sets that hold one of the faults are another training."""
    tried: list[tuple[str, ...]] = []

    def judge(settings: tuple[str, ...]) -> Outcome:
        tried.append(settings)
        return "different" if any(fault <= set(settings) for fault in faults) else "equivalent"

    return tried, judge


def test_settings_that_are_another_training_alone_are_all_named() -> None:
    tried, judge = judging({"compiled"}, {"amp-bf16"})
    found = bisect(FOUR, judge)
    assert found.smallest == [["compiled"], ["amp-bf16"]]
    assert tried == [(one,) for one in FOUR]
    assert found.tried == {
        "ddp:2": "equivalent",
        "gradaccum:2": "equivalent",
        "compiled": "different",
        "amp-bf16": "different",
    }
    assert found.sentence == "compiled, amp-bf16: each is another training (4 sets of settings tried)"


def test_a_fault_of_two_settings_together_is_found() -> None:
    _, judge = judging({"ddp:2", "compiled"})
    found = bisect(FOUR, judge)
    assert found.smallest == [["ddp:2", "compiled"]]
    assert found.sentence.startswith("only together: ddp:2 + compiled, of which none can be left out (")


@given(st.data())
def test_what_is_found_is_another_training_and_nothing_of_it_can_be_left_out(data: st.DataObject) -> None:
    settings = [str(number) for number in range(data.draw(st.integers(2, 6)))]
    faults = data.draw(st.lists(st.sets(st.sampled_from(settings), min_size=1), min_size=1, max_size=3))
    tried, judge = judging(*faults)
    found = bisect(settings, judge)
    assert len(tried) == len(set(tried)) <= 2 * len(settings)
    for smallest in found.smallest:
        assert any(fault <= set(smallest) for fault in faults)
        for one in smallest:
            assert not any(fault <= set(smallest) - {one} for fault in faults)


def test_a_set_that_fails_is_no_difference() -> None:
    found = bisect(["a", "b"], lambda settings: "failed")
    assert found.smallest == [["a", "b"]]
    assert found.tried == {"a": "failed", "b": "failed"}
