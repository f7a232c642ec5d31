import math
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch

import trainparity
from tests.support.report_tree import status
from trainparity.errors import UserError
from trainparity.parity.curves import judge_curves, judge_runs, read_curve
from trainparity.records.base import RecordError, write_csv


def curves(seeds: range, shift: float = 0.0, late: float = 0.0) -> list[list[float]]:
    """Falling losses whose level varies by 0.1 over seeds; `late` is a shift of the last tenth only."""
    found = []
    for seed in seeds:
        generator = np.random.default_rng(seed)
        level = 1 + 0.1 * generator.standard_normal()
        losses = level * np.exp(-np.arange(100) / 40) + 0.01 * generator.standard_normal(100) + shift
        losses[90:] += late
        found.append(losses.tolist())
    return found


@pytest.mark.study
def test_runs_of_one_recipe_are_consistent_about_as_often_as_the_level_says() -> None:
    drifted = sum(
        judge_curves(curves(range(100 * i, 100 * i + 5)), curves(range(100 * i + 50, 100 * i + 55))).verdict
        == "drifted"
        for i in range(60)
    )
    assert drifted <= 8  # 3 expected at 0.05; more than 8 of 60 come about once in 500


def test_a_shift_beyond_the_spread_has_drifted_wherever_in_the_run_it_is() -> None:
    assert judge_curves(curves(range(5)), curves(range(5, 10), shift=0.6)).verdict == "drifted"
    late = judge_curves(curves(range(5)), curves(range(5, 10), late=0.2))
    assert late.verdict == "drifted" and (late.p_value or 1) < 0.05


@pytest.mark.study
def test_the_stated_power_holds() -> None:
    found = judge_curves(curves(range(8)), curves(range(8, 16)))
    assert found.detectable is not None
    spread = float(np.std([np.mean(c[90:]) for c in curves(range(200))], ddof=1))
    shift = (found.detectable + 0.5) * max(spread, found.spread or 0)
    trials = [
        judge_curves(curves(range(s, s + 8)), curves(range(s + 8, s + 16), late=shift)) for s in range(20, 520, 50)
    ]
    assert sum(trial.verdict == "drifted" for trial in trials) >= 0.6 * len(trials)


def test_too_few_runs_and_diverged_ones() -> None:
    few = judge_curves(curves(range(3)), curves(range(3)))
    assert few.verdict == "cannot judge" and "four of each can" in few.sentence
    diverged = [*curves(range(4)), [math.nan] * 100]
    found = judge_curves(curves(range(5)), diverged)
    assert (found.verdict, found.reason) == ("drifted", "1 of 5 runs diverged")
    assert judge_curves(diverged, curves(range(5))).verdict == "cannot judge"


def test_losses_without_any_spread_are_compared_all_the_same() -> None:
    zero, one = [[0.0] * 20] * 5, [[1.0] * 20] * 5
    assert judge_curves(zero, zero).verdict == judge_curves(one, one).verdict == "consistent"
    assert judge_curves(zero, one).verdict == "drifted"


def test_curves_are_read_from_the_pipeline_and_from_a_recorder(tmp_path: Path) -> None:
    (tmp_path / "loss.csv").write_text("step,loss\n" + "".join(f"{i},{i / 2}\n" for i in range(12)))
    assert read_curve(tmp_path)[:3] == [0, 0.5, 1]
    (tmp_path / "loss.csv").rename(tmp_path / "curve.csv")
    rows = [f"{i},{name},{value}\n" for i in range(12) for name, value in (("loss", i), ("accuracy", 0.1))]
    (tmp_path / "curve.csv").write_text("step,name,value\n" + "".join(rows))
    assert read_curve(tmp_path) == [float(i) for i in range(12)]
    with pytest.raises(RecordError, match=r"no loss\.csv or curve\.csv"):
        read_curve(tmp_path / "none")
    (tmp_path / "curve.csv").write_text("step,name,value\n0,loss,1\n")
    with pytest.raises(RecordError, match="1 losses; a curve needs at least 10"):
        read_curve(tmp_path)


def runs(root: Path, name: str, seeds: int = 4) -> list[Path]:
    folders = [root / f"{name}-{seed}" for seed in range(seeds)]
    for folder, losses in zip(folders, curves(range(seeds)), strict=True):
        status(folder.name).write(folder / "status.json")
        write_csv(folder / "loss.csv", ("step", "loss"), enumerate(losses))
    return folders


def test_a_seed_that_crashed_fails_the_pair_of_recipes_and_nothing_else(tmp_path: Path) -> None:
    left, right = runs(tmp_path, "fp32"), runs(tmp_path, "bf16")
    assert judge_runs(left, right).verdict == "consistent"
    status("bf16-2", status="failed", reason="killed").write(right[2] / "status.json")
    found = judge_runs(left, right)
    assert (found.verdict, found.exit_code) == ("failed", 2)
    assert "bf16-2 failed: killed" in found.sentence
    (left[0] / "loss.csv").unlink()
    status("bf16-2").write(right[2] / "status.json")
    assert judge_runs(left, right).verdict == "cannot judge"


@pytest.mark.filterwarnings("error")
def test_losses_too_large_to_be_squared_have_drifted_all_the_same() -> None:
    """As a loss that explodes and is still finite."""
    huge = [[value * 1e200 for value in curve] for curve in curves(range(5, 10))]
    found = judge_curves(curves(range(5)), huge)
    assert found.verdict == "drifted" and math.isfinite(found.statistic or math.inf)
    alike = judge_curves([[value * 1e200 for value in curve] for curve in curves(range(5))], huge)
    assert alike.verdict == "consistent" and math.isfinite(alike.spread or math.inf) and alike.detectable
    assert judge_curves(curves(range(5)), [[1.7e308] * 100] * 5).reason == "5 of 5 runs diverged"


def test_the_test_is_the_same_in_other_units() -> None:
    left, right = curves(range(5)), curves(range(5, 10), shift=0.1)
    one = judge_curves(left, right)
    thousand = judge_curves(*([[1000 * value for value in curve] for curve in side] for side in (left, right)))
    assert thousand.p_value == one.p_value and thousand.spread == pytest.approx(1000 * (one.spread or 0))


def test_recipes_whose_runs_are_not_equally_long_are_compared_part_by_part_and_the_sentence_says_so() -> None:
    left, right = curves(range(5)), curves(range(5, 10))
    half = [[(a + b) / 2 for a, b in zip(curve[::2], curve[1::2], strict=True)] for curve in right]  # twice the batch
    found = judge_curves(left, half)
    assert found.verdict == "consistent" and found.losses == [100, 50]
    assert "of 100 and 50 losses a run" in found.sentence
    assert "losses a run" not in judge_curves(left, right).sentence
    stopped = judge_curves(left, [curve[:50] for curve in right])
    assert stopped.verdict == "drifted" and "of 100 and 50 losses a run" in stopped.sentence


def test_one_run_is_not_two_seeds(tmp_path: Path) -> None:
    left, right = runs(tmp_path, "fp32"), runs(tmp_path, "bf16")
    with pytest.raises(UserError, match=r"bf16-0: the run of \S+bf16-0 again"):
        judge_runs(left, [right[0], *right[1:], right[0].parent / "." / right[0].name])
    with pytest.raises(UserError, match=r"fp32-1: the run of \S+fp32-1 again"):
        judge_runs(left, [left[1], *right[1:]])


def test_a_copy_of_a_recorded_run_is_no_other_seed_and_no_other_recipe(tmp_path: Path) -> None:
    left, right = ([record(tmp_path / f"{name}{seed}", seed) for seed in range(4)] for name in "ab")
    assert judge_runs(left, right).verdict == "consistent"
    copy = shutil.copytree(left[0], tmp_path / "copy")
    for wrong in ([left, [copy, *right[1:]]], [[*left[:3], copy], right]):
        with pytest.raises(UserError, match=r"copy: the run of \S+a0 again"):
            judge_runs(*wrong)


def record(folder: Path, seed: int) -> Path:
    torch.manual_seed(seed)
    model = torch.nn.Linear(2, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with trainparity.record(model, optimizer, folder) as recorder:
        for _ in range(10):
            optimizer.zero_grad()
            loss = (model(torch.ones(4, 2)) - 1).square().mean()
            loss.backward()
            recorder.log(loss=loss)
            optimizer.step()
    return folder


def test_a_part_of_a_curve_is_none(tmp_path: Path) -> None:
    left, right = runs(tmp_path, "fp32"), runs(tmp_path, "bf16")
    path = right[2] / "loss.csv"
    path.write_text("".join(path.read_text().splitlines(keepends=True)[:51]))
    found = judge_runs(left, right)
    assert found.verdict == "cannot judge" and "50 losses, and 100 in" in found.sentence
    path.rename(right[2] / "curve.csv")
    (right[2] / "curve.csv").write_text("step,name,value\n" + "".join(f"{i},loss,1\n" for i in range(99)) + "99,")
    found = judge_runs(left, right)
    assert found.verdict == "cannot judge" and "row 100: the name is empty" in found.sentence


@pytest.mark.parametrize(
    ("cells", "says"),
    [
        ("1" * 200_000, "row 3: field larger than field limit"),
        ("x" * 9_000, "row 3: could not convert string to float"),
        ("\udcff", "row 1: 'utf-8' codec can't decode byte 0xff"),
        ("", "row 3: could not convert string to float: ''"),
    ],
)
def test_a_damaged_curve_is_named_in_a_short_sentence(cells: str, says: str, tmp_path: Path) -> None:
    text = f"step,name,value\n0,loss,1\n1,loss,1\n2,loss,{cells}\n"
    (tmp_path / "curve.csv").write_bytes(text.encode(errors="surrogateescape"))
    with pytest.raises(RecordError, match=says) as caught:
        read_curve(tmp_path)
    assert len(str(caught.value)) < 300 + len(str(tmp_path))
    (tmp_path / "curve.csv").write_text("step,what\n0,loss\n")
    with pytest.raises(RecordError, match="no column 'value'"):
        read_curve(tmp_path)
