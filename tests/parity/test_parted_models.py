"""What differs behind another model, whose weights rounding alone has parted, as a generator's behind its critic."""

from typing import Any

import pytest
import torch

from tests.support.synthetic import trace
from trainparity.parity.parted_models import Judged, behind_parted_models
from trainparity.records.verdict import Verdict


def critic(apart: float, *, verdict: str = "equivalent", step: int | None = None) -> Judged:
    """Return a model that makes its steps 0, 2, 4, ... of all, of which a weight parts by so much in the first."""
    left, right = (trace(twin=twin, sequence=2 * torch.arange(4)) for twin in (0, 9))
    right.arrays["weight/sketch"][0, 1] *= 1 + apart
    evidence = {"sequence": 2 * step} if step is not None else {}
    said = Verdict(left="a", right="b", verdict=verdict, margin=16.0, step=step, evidence=evidence)  # type: ignore[arg-type]
    return Judged(said, (left, right))


def generator(distance: float, **evidence: Any) -> Judged:
    """Return a model that makes its steps 1, 3, 5, ... and differs in the first of them."""
    evidence = {"sequence": 1, "gradient_distance": distance, "judged_by_another_model": True} | evidence
    facts: dict[str, Any] = {"cause": "loss-or-targets", "link": "loss", "step": 0, "evidence": evidence}
    return Judged(Verdict(left="a", right="b", verdict="different", margin=16.0, **facts), None)


MADE = {"judged_by_another_model": False, "identified_by": "content", "missing": 3, "extra": 3}


@pytest.mark.parametrize("evidence", [{}, MADE, {"judged_by_another_model": False, "made_by_another_model": True}])
def test_a_difference_no_larger_than_the_other_models_explains_is_not_judged(evidence: dict[str, Any]) -> None:
    found = behind_parted_models({"": generator(0.016, **evidence), "critic": critic(0.003)})
    assert found[""].verdict == "cannot judge" and found[""].cause is None and found[""].hidden_by_floor
    assert "a.bias of critic, which hands on what differs here, has parted by 0.003" in str(found[""].reason)
    assert found["critic"].verdict == "equivalent"


@pytest.mark.parametrize(
    ("of_generator", "of_critic"),
    [
        (generator(0.5), critic(0.003)),  # more than that explains
        (generator(0.016), critic(1e-6)),  # it has parted by what it is rounded by
        (generator(0.016, judged_by_another_model=False), critic(0.003)),  # it hands nothing on
        (generator(0.016), critic(0.003, verdict="different", step=0)),  # by a fault of its own
        (generator(0.016, sequence=0), critic(0.003)),  # later
    ],
)
def test_another_difference_stays_one(of_generator: Judged, of_critic: Judged) -> None:
    found = behind_parted_models({"": of_generator, "critic": of_critic})
    assert found[""] == of_generator.verdict


def test_what_follows_from_a_model_that_is_not_judged_is_not_either() -> None:
    """As a critic's next samples, which the generator has made."""
    later = critic(0.003, verdict="different", step=1)
    evidence = later.verdict.evidence | MADE | {"gradient_distance": 0.01}
    later = later._replace(verdict=later.verdict.model_copy(update={"evidence": evidence, "cause": "samples"}))
    made = generator(0.016)
    left, right = (trace(twin=twin, sequence=1 + 2 * torch.arange(4)) for twin in (0, 9))
    right.arrays["weight/sketch"][0, 1] *= 1.01
    found = behind_parted_models({"": made._replace(traces=(left, right)), "critic": later})
    assert [verdict.verdict for verdict in found.values()] == ["cannot judge", "cannot judge"]
