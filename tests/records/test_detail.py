"""What stays of a strip when it has more rows and columns than a page can show."""

from pathlib import Path

from tests.support.report_tree import detail
from trainparity.records.detail import Detail, Strip, write_details


def strip(distance: list[list[float | None]], names: list[str] | None = None, floor: float = 1.0) -> Strip:
    return Strip(
        kind="gradient",
        judged=True,
        tensors=names or ["(all)", *(f"blocks.{row // 2}.{'ab'[row % 2]}" for row in range(len(distance) - 1))],
        steps=list(range(0, 10 * len(distance[0]), 10)),
        distance=distance,
        floor=[[floor] * len(row) for row in distance],
        left_norm=distance,
        right_norm=[[10 * (cell or 0) for cell in row] for row in distance],
    )


def test_a_strip_that_fits_stays_as_it_is() -> None:
    found = strip([[1.0, 2.0], [3.0, 4.0]])
    assert found.condensed(2, 2) is found


def test_tensors_become_layers_and_the_worst_of_a_few_steps_stays() -> None:
    found = strip([[1, 1, 1, 1], [2, 9, 1, 1], [3, 1, 1, 5], [1, 1, 1, 1], [1, 1, 1, 7]]).condensed(3, 2)
    assert (found.tensors, found.steps) == (["(all)", "blocks.0", "blocks.1"], [0, 20])
    assert found.distance == found.left_norm == [[1, 1], [9, 5], [1, 7]]
    assert found.right_norm == [[10, 10], [90, 50], [10, 70]]


def test_worst_is_by_the_floor_not_by_the_distance() -> None:
    found = strip([[1.0] * 2, [1.0] * 2]).model_copy(
        update={"floor": [[1.0, 1.0], [1e-3, 1.0]], "distance": [[5.0, 9.0], [1.0, 5.0]]}
    )
    assert found.condensed(2, 1).distance == [[9.0], [1.0]]


def test_what_is_not_known_hides_behind_nothing() -> None:
    assert strip([[1.0, None, 1e300], [1.0, 0.0, 2.0]]).condensed(2, 1).distance == [[None], [2.0]]


def test_without_modules_neighbours_are_joined() -> None:
    names = ["(all)", *(f"w{number}" for number in range(9))]
    found = strip([[float(row)] for row in range(10)], names).condensed(4, 1)
    assert found.tensors == ["(all)", "w0 to w2", "w3 to w5", "w6 to w8"]
    assert found.distance == [[0], [3], [6], [9]]


def test_many_modules_become_neighbours_before_one_row_swallows_all() -> None:
    names = ["(all)", *(f"blocks.{number // 2}.{'ab'[number % 2]}" for number in range(40))]
    found = strip([[float(row)] for row in range(41)], names).condensed(6, 1)
    assert found.tensors[:2] == ["(all)", "blocks.0 to blocks.3"] and len(found.tensors) == 6
    assert found.distance == [[0], [8], [16], [24], [32], [40]]


def test_a_floor_of_zero_is_beyond_everything_but_equality() -> None:
    found = strip([[0.0, 1e-9], [0.0, 0.0]], floor=0.0)
    assert found.condensed(2, 1).distance == [[1e-9], [0.0]]


def test_details_of_removed_pairs_go(tmp_path: Path) -> None:
    folder = tmp_path / "detail"
    write_details(folder, {"old": detail(1.0), "kept": detail(1.0)})
    write_details(folder, {"kept": detail(2.0)})
    assert [path.name for path in folder.iterdir()] == ["kept.json"]
    assert Detail.read(folder / "kept.json") == detail(2.0)
