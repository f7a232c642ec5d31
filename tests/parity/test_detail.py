"""What a page shows of two runs: the same distances that the verdict is made of."""

from pathlib import Path

import pytest
import torch

from tests.support.synthetic import floor, judge, scaled, trace, twins
from trainparity.parity.compare import compare_folders, compare_in_detail, describe_folders
from trainparity.parity.detail import describe
from trainparity.parity.recording.trace import Trace
from trainparity.records.detail import Detail, Fact, Strip


def described(right: dict[str, object], **both: object) -> Detail:
    found = describe(trace(**both), trace(**both, **right), floor(**both), twins(**both))
    assert found
    return found


def strip(detail: Detail, kind: str) -> Strip:
    return next(strip for strip in detail.strips if strip.kind == kind)


def fact(detail: Detail, name: str) -> Fact:
    return next(fact for fact in detail.facts if fact.name == name)


def test_the_strips_hold_the_distances_of_the_verdict() -> None:
    change = {"gradients": scaled(2.0, "a.bias", since=2)}
    found, verdict = described(change), judge({}, change)
    gradients = strip(found, "gradient")
    assert gradients.tensors == ["(all)", "a.weight", "a.bias", "b.weight"] and gradients.steps == [0, 1, 2, 3]
    assert gradients.distance[2] == pytest.approx([0, 0, 1, 1])
    assert gradients.right_norm[2] == pytest.approx(
        [left * (2 if step > 1 else 1) for step, left in enumerate(gradients.left_norm[2])], rel=1e-3
    )
    assert gradients.left_norm[0][0] ** 2 == pytest.approx(
        sum(row[0] ** 2 for row in gradients.left_norm[1:]), rel=1e-3
    )
    worst = next(worst for worst in verdict.worst if worst.kind == "gradient")
    assert gradients.distance[2][worst.step] == pytest.approx(worst.distance, rel=5e-3)
    assert gradients.floor[2][worst.step] == pytest.approx(worst.floor, rel=5e-3)
    assert found.worst[0].distance_over_floor == verdict.distance_over_floor
    assert found.worst[0].tensor == "a.bias" and len({w.tensor for w in found.worst}) == len(found.worst)


def test_activations_explain_and_are_not_judged() -> None:
    found = described({"activations": {"norm": 1.0}})
    assert {s.kind: s.judged for s in found.strips} == {
        "activation": False, "gradient": True, "update": True, "weight": True, "buffer": True
    }  # fmt: skip
    activations = strip(found, "activation")
    assert (activations.distance[activations.tensors.index("norm")][0] or 0) > 0.1
    assert all(worst.tensor != "norm" for worst in found.worst)


def test_numbers_of_both_runs_stand_beside_each_other_with_the_band_of_the_twins() -> None:
    found = described({"lr": lambda step: 0.2, "limit": 0.5})
    rate = fact(found, "learning rate")
    assert (rate.left, rate.right, rate.band) == ([0.1] * 4, [0.2] * 4, [0.0] * 4)
    assert rate.difference == pytest.approx([0.1] * 4)
    assert fact(found, "clipping limit").left == [None] * 4 and fact(found, "clipping limit").right == [0.5] * 4
    assert "loss scale" not in {fact.name for fact in found.facts}
    assert 0 < max(value or 0 for value in fact(found, "gradient norm").band) < 1e-5


def test_a_loss_that_was_not_handed_over_is_that_of_backward() -> None:
    left, right = trace(), trace()
    assert fact(described({}), "loss").left == [1.0] * 4
    for run, loss in ((left, 0.5), (right, 0.75)):
        run.arrays["loss"] = torch.full((4,), torch.nan)
        run.arrays["rank/loss"] = torch.full((4, 1), loss, dtype=torch.float64)
    found = describe(left, right, floor(), twins())
    assert found and fact(found, "loss").difference == [0.25] * 4


def test_samples_are_said_to_be_the_same_or_not() -> None:
    assert described({}).samples == "the same samples at each of 4 traced steps"
    other = trace()
    other.arrays["samples"][1:3] += 1
    found = describe(trace(), other, floor(), twins())
    assert found and found.samples == "other samples at 2 of 4 traced steps, first at step 1"
    other.arrays["sample_ids"][2, -2:] = 10**6
    found = describe(trace(), other, floor(), twins())
    assert found and fact(found, "samples").difference == [0, 0, 2, 0]
    assert fact(found, "samples").left == fact(found, "samples").right
    other.arrays["sample_ids"] = other.arrays["sample_ids"][:, :-1]
    found = describe(trace(), other, floor(), twins())
    assert found and fact(found, "samples").difference == [0, None, None, 0]


def test_what_diverged_can_be_described() -> None:
    found = described({"gradients": scaled(float("nan"), since=1)})
    assert strip(found, "gradient").distance[1][1] == 1e300
    Detail.model_validate_json(found.as_json())


def test_other_models_are_not_described() -> None:
    assert describe(trace(), trace(layout={"parameters": {"c": [1]}}), floor(), []) is None


def test_folders_are_described_by_model_and_unreadable_ones_left_out(tmp_path: Path) -> None:
    for run in ("a", "b"):
        trace().save(tmp_path / run)
        trace().save(tmp_path / run / "models/D")
    for number, twin in enumerate(twins(), 1):
        twin.save(tmp_path / "a/twins" / str(number))
    found = describe_folders(tmp_path / "a", tmp_path / "b")
    assert list(found) == ["", "D"] and len(found[""].left) == 64
    (tmp_path / "b/models/D/trace.safetensors").write_bytes(b"")
    assert list(describe_folders(tmp_path / "a", tmp_path / "b")) == [""]
    assert describe_folders(tmp_path / "a", tmp_path / "none") == {}


def test_one_reading_gives_the_verdict_and_what_stands_behind_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    places = tmp_path / "a", tmp_path / "b"
    trace().save(places[0])
    trace(gradients=scaled(2.0)).save(places[1])
    for twin in (1, 2):
        twins()[twin - 1].save(places[0] / f"twins/{twin}")
    apart = compare_folders(*places), describe_folders(*places)
    load, read = Trace.load, []
    monkeypatch.setattr(Trace, "load", staticmethod(lambda folder: (read.append(folder), load(folder))[1]))
    assert compare_in_detail(*places) == apart and apart[0].verdict == "different"
    assert sorted(read) == sorted({*read}) and len(read) == 4
    verdict, details = compare_in_detail(places[0], tmp_path / "none")
    assert verdict.verdict == "cannot judge" and details == {}
