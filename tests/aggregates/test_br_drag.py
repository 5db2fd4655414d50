"""BR-DRAG's edge cases."""

from __future__ import annotations

from typing import Any

import pytest

from dragfl.aggregates import BRDrag
from dragfl.errors import SpecError
from dragfl.types import FederationInfo, NoState, RoundContext, RoundInputs
from tests.aggregates.drive import run_rule


def test_the_root_update_is_needed() -> None:
    rule = BRDrag()
    assert rule.needs(NoState()) == {"root"}
    with pytest.raises(ValueError, match="br_drag needs the root update"):
        rule.begin(NoState(), RoundContext(0, 0.1, 0), RoundInputs(), FederationInfo(2, 1, 1, (0, 2)))


def test_a_free_rider_is_not_turned_into_the_reference() -> None:
    """A zero update gives v = 0 and still counts: Delta = (r + 0)/2 for g_1 along r."""
    done = run_rule(BRDrag(c=0.5), [[0.0, 5.0], [0.0, 0.0]], root=[0.0, 2.0])
    assert done.step.tolist() == [0.0, 1.0]
    assert done.partial.per_client["divergence"].tolist() == [0.0, 0.0]


@pytest.mark.parametrize("variant", ["paper", "authors"])
@pytest.mark.parametrize("size", [0.0, 1e-13, float("nan"), float("inf")])
def test_a_root_update_without_direction_stops_the_round(variant: Any, size: float) -> None:
    """Nothing can be trusted, so nothing moves; also where the root training came to nothing finite."""
    done = run_rule(BRDrag(c=0.5, variant=variant), [[1.0, 2.0, 3.0]], root=[size, 0.0, 0.0], segments=(0, 2, 3))
    assert done.step.tolist() == [0.0, 0.0, 0.0]
    assert "reference_cosine" not in done.metrics


@pytest.mark.parametrize("size", [0.0, 1e-13])
def test_a_tensor_that_the_root_did_not_move_stays_in_the_authors_form(size: float) -> None:
    """r = (2 | 0), or almost: the first tensor follows its rule (x = 1, v = r), the second does not move."""
    done = run_rule(BRDrag(c=0.25, variant="authors"), [[7.0, 9.0]], root=[2.0, size], segments=(0, 1, 2))
    assert done.step.tolist() == [2.0, 0.0]


def test_the_metrics_show_the_malicious_client() -> None:
    done = run_rule(BRDrag(c=0.25), [[0.0, 3.0], [0.0, -3.0]], root=[0.0, 1.0])
    assert done.partial.per_client["suspicion"].tolist() == [0.0, 2.0]
    assert done.partial.per_client["norm"].tolist() == [3.0, 3.0]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"c": 1.01}, r"br_drag.c: 1.01 is outside \[0, 1\]"),
        ({"c": None}, r"br_drag.c: None is a NoneType"),
        ({"divergence": "cosine"}, r"br_drag.divergence: 'cosine' is unknown"),
        ({"variant": "papers"}, r"br_drag.variant: 'papers' is unknown; did you mean 'paper'\?"),
    ],
)
def test_settings_outside_their_range_are_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(SpecError, match=message):
        BRDrag(**settings)
