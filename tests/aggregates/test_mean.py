"""FedAvg's mean and its telemetry."""

from __future__ import annotations

import pytest

from dragfl.aggregates import Mean
from dragfl.types import NoState
from tests.aggregates.drive import block, run_rule


def test_nothing_is_needed() -> None:
    assert Mean().needs(NoState()) == frozenset()


def test_pairwise_cosine() -> None:
    """Directions (1,0), (0,1), (-1,0): cosines 0, -1, 0 with mean -1/3; a zero update has no direction."""
    done = run_rule(Mean(), [[3.0, 0.0], [0.0, 5.0], [-1.0, 0.0], [0.0, 0.0]])
    assert done.metrics["pairwise_cosine"] == pytest.approx(-1 / 3)
    assert run_rule(Mean(), [[3.0, 4.0]]).metrics["pairwise_cosine"] == 1.0


def test_samples_do_not_change_the_plain_mean_that_rules_are_compared_with() -> None:
    """(1 * 1 + 3 * 5)/4 = 4 against (1 + 5)/2 = 3."""
    done = run_rule(Mean(weighting="samples"), block([[1.0], [5.0]], weight=[1.0, 3.0]))
    assert done.step.tolist() == [4.0]
    assert done.partial.mean.tolist() == [3.0]
