import pytest

from trainparity.parity.operators import first_operator
from trainparity.records.operators import OperatorCall, OperatorLog


def log(*calls: tuple[str, list[float]], place: str = "a.py") -> OperatorLog:
    made = [
        OperatorCall(operator=name, place=f"{place}:{line}", shape=[2], sketch=sketch)
        for line, (name, sketch) in enumerate(calls, 1)
    ]
    return OperatorLog(step=3, calls=made)


PLAIN = log(("mm", [1.0, 2.0]), ("tanh", [0.5, 0.25]), ("mm", [3.0, 1.0]))


def test_the_first_result_beyond_the_floor_is_named_with_both_lines() -> None:
    other = log(("mm", [1.0, 2.0]), ("tanh", [0.5, 0.5]), ("mm", [9.0, 9.0]), place="b.py")
    found = first_operator(PLAIN, other, [], 16.0)
    assert found is not None
    assert (found.operator, found.left, found.right, found.step) == ("tanh", "a.py:2", "b.py:2", 3)
    assert found.distance == pytest.approx(0.25 / 0.5**0.5)


def test_what_twins_do_as_well_is_rounding() -> None:
    twin = log(("mm", [1.0, 2.0]), ("tanh", [0.5, 0.26]), ("mm", [3.0, 1.0]))
    other = log(("mm", [1.0, 2.0]), ("tanh", [0.5, 0.24]), ("mm", [3.0, 1.0]))
    assert first_operator(PLAIN, other, [twin], 16.0) is None
    assert first_operator(PLAIN, other, [], 16.0) is not None
    unlike = log(("mm", [1.0, 2.0]), ("tanh", [0.5, 0.26]))
    assert first_operator(PLAIN, other, [unlike], 16.0) is not None  # of it nothing is learnt


def test_what_a_twin_makes_of_rows_in_another_order_hides_nothing_behind_it() -> None:
    reference, twin, other = (
        log(("mm", [1.0, 2.0]), ("native_layer_norm", turned), ("gelu", [3.0, gelu]), ("mm", [3.0, 1.0]))
        for turned, gelu in (([1.0, -1.0], 1.0), ([-1.0, 1.0], 1.000001), ([1.0, -1.0], 1.001))
    )
    found = first_operator(reference, other, [twin], 16.0)
    assert found is not None and found.operator == "gelu" and found.floor < 1e-5
    assert first_operator(reference, reference, [twin], 16.0) is None


def test_operators_of_one_run_only_are_told_beside_the_next_common_one() -> None:
    other = log(("mm", [1.0, 2.0]), ("tanh", [0.5, 0.25]), ("relu", [0.5, 0.2]), ("mm", [3.0, 2.0]), place="b.py")
    found = first_operator(PLAIN, other, [], 16.0)
    assert found is not None and (found.operator, found.left, found.right) == ("mm", "a.py:3", "b.py:4")
    assert (found.only_left, found.only_right) == ([], ["relu at b.py:3"])
    assert found.sentence.startswith("mm at a.py:3 / b.py:4 is the first beyond its floor: ")
    assert found.sentence.endswith("; before it, only in the other run: relu at b.py:3")


def test_a_result_that_is_finite_in_one_run_only_differs() -> None:
    other = log(("mm", [1.0, 2.0]), ("tanh", []), ("mm", [3.0, 1.0]))
    found = first_operator(PLAIN, other, [], 16.0)
    assert found is not None and found.operator == "tanh" and "finite in one run only" in found.sentence
    assert first_operator(other, other, [], 16.0) is None
