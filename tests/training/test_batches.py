"""Which samples a client draws."""

from __future__ import annotations

import numpy as np
import pytest

from dragfl.rng import rng
from dragfl.training.batches import draw, steps_in


def test_replacement_draws_full_batches_of_independent_samples() -> None:
    batches = draw(rng(0, "test"), 7, 400, 5, "replacement")
    assert [len(b) for b in batches] == [5] * 400
    drawn = np.concatenate(batches)
    shares = np.bincount(drawn, minlength=7) / len(drawn)
    # 2000 draws: the standard error of a share of 1/7 is 0.0078
    assert np.abs(shares - 1 / 7).max() < 4 * 0.0078
    assert any(len(set(b.tolist())) < 5 for b in batches), "five of seven without a repeat, 400 times over"


def test_epoch_visits_each_sample_once_per_pass() -> None:
    """10 samples in batches of 4: 4, 4, 2, and again."""
    batches = draw(rng(0, "test"), 10, 6, 4, "epoch")
    assert [len(b) for b in batches] == [4, 4, 2, 4, 4, 2]
    first, second = np.concatenate(batches[:3]), np.concatenate(batches[3:])
    assert sorted(first) == sorted(second) == list(range(10))
    assert first.tolist() != second.tolist(), "each epoch is shuffled again"


def test_epoch_may_stop_within_a_pass() -> None:
    batches = draw(rng(0, "test"), 10, 4, 4, "epoch")
    assert [len(b) for b in batches] == [4, 4, 2, 4]


def test_a_batch_larger_than_the_data() -> None:
    assert [sorted(b) for b in draw(rng(0, "test"), 3, 2, 20, "epoch")] == [[0, 1, 2], [0, 1, 2]]
    assert [len(b) for b in draw(rng(0, "test"), 3, 2, 20, "replacement")] == [20, 20]


@pytest.mark.parametrize(("epochs", "samples", "size", "steps"), [(1, 10, 4, 3), (2, 10, 5, 4), (3, 1, 20, 3)])
def test_steps_in(epochs: int, samples: int, size: int, steps: int) -> None:
    assert steps_in(epochs, samples, size) == steps
    visited = np.concatenate(draw(rng(0, "test"), samples, steps, size, "epoch"))
    assert np.bincount(visited, minlength=samples).tolist() == [epochs] * samples
