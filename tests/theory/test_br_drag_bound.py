"""BR-DRAG's guarantee: no attacker exceeds the bounds, and some attain them."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from dragfl import attacks, functional
from dragfl.errors import SettingError
from dragfl.theory.br_drag_bound import (
    honest_progress,
    largest_pull,
    largest_step,
    least_root_progress,
    tolerated_share,
)
from tests.strategies import QUICK, seeds, strengths

sizes = st.sampled_from([0.0, 1e-30, 1e-6, 1.0, 1e6, 1e30])


def round_of(seed: int, honest: int, d: int = 6) -> tuple[torch.Tensor, torch.Tensor, list[float]]:
    """Honest updates (honest, d), the root update, and their cosines."""
    draws = np.random.default_rng(seed)
    X, r = torch.from_numpy(draws.normal(size=(honest, d))), torch.from_numpy(draws.normal(size=d))
    return X, r, [float(x) for x in (X @ r) / (X.norm(dim=1) * r.norm())]


def along(X: torch.Tensor, r: torch.Tensor, c: float) -> float:
    """<Delta, rhat> / |r| of the library's rule."""
    return float(functional.br_drag(X, r, c) @ r / (r @ r))


@QUICK
@given(seeds, strengths, st.lists(sizes, min_size=1, max_size=9), st.integers(1, 5))
def test_random_attackers_never_exceed_the_bounds(seed: int, c: float, size: list[float], honest: int) -> None:
    """Updates of any direction and length, many of them almost opposed to the root update."""
    X, r, cosines = round_of(seed, honest)
    draws = np.random.default_rng(seed + 1)
    bad = torch.from_numpy(draws.normal(size=(len(size), 6)) * draws.choice([1.0, 1e-3], (len(size), 1))) - r
    sent = torch.cat([X, bad * torch.tensor(size).unsqueeze(1)])
    step = functional.br_drag(sent, r, c)
    assert float(step.norm()) <= largest_step(c) * float(r.norm()) * (1 + 1e-9)
    assert along(sent, r, c) >= least_root_progress(c, len(size) / len(sent), cosines) - 1e-9


@pytest.mark.parametrize("c", [0.05, 0.1, 0.2, 0.25, 0.35, 0.5, 0.8])
def test_optimised_attackers_come_near_the_bound_and_never_exceed_it(c: float) -> None:
    """Three attackers beside four honest clients descend along the root direction by random steps.

    For c > 1/4 the step of least progress is that of zero updates, which a search over directions cannot find: it ends
    at 1 - 1/(4c) of each attacker.
    """
    X, r, cosines = round_of(3, 4, 4)
    draws, share = np.random.default_rng(0), 3 / 7
    bad = torch.from_numpy(draws.normal(size=(3, 4)))
    best = along(torch.cat([X, bad]), r, c)
    for t in range(800):
        tried = bad + torch.from_numpy(draws.normal(size=(3, 4))) * 0.985**t
        if (value := along(torch.cat([X, tried]), r, c)) < best:
            best, bad = value, tried
    due = least_root_progress(c, share, cosines)
    assert best >= due - 1e-12
    if c > 0.25:
        due += share * (1 - 1 / (4 * c))
    assert best == pytest.approx(due, abs=1e-3)


@pytest.mark.parametrize("c", [0.0, 0.05, 0.1, 0.2, 0.25])
@pytest.mark.parametrize("f", [1, 4, 9])
def test_the_white_box_attack_attains_the_bound(c: float, f: int) -> None:
    X, r, cosines = round_of(1, 6)
    sent = torch.cat([X, attacks.adaptive_br_drag(X, f, r, c, "along")])
    assert along(sent, r, c) == pytest.approx(least_root_progress(c, f / (6 + f), cosines), abs=1e-6)


@pytest.mark.parametrize("c", [0.3, 0.5, 1.0])
def test_above_a_quarter_zero_updates_attain_the_bound_and_the_attack_does_not(c: float) -> None:
    """Every other update contributes at least 1 - 1/(4c) > 0 along the root, that of the attack exactly this."""
    X, r, cosines = round_of(2, 6)
    due = least_root_progress(c, 0.4, cosines)
    assert along(torch.cat([X, torch.zeros(4, 6, dtype=X.dtype)]), r, c) == pytest.approx(due, abs=1e-6)
    attacked = torch.cat([X, attacks.adaptive_br_drag(X, 4, r, c, "along")])
    assert along(attacked, r, c) == pytest.approx(due + 0.4 * (1 - 1 / (4 * c)), abs=1e-6)


@pytest.mark.parametrize("c", [0.5, 0.75, 1.0])
def test_the_longest_step_is_attained(c: float) -> None:
    """By the root update itself for c = 1/2, and by its reversal above."""
    r = torch.tensor([3.0, 4.0], dtype=torch.float64)
    sent = torch.stack([r if c <= 0.5 else -r] * 3)
    assert float(functional.br_drag(sent, r, c).norm()) == pytest.approx(5.0 * largest_step(c), rel=1e-9)


@QUICK
@given(seeds, st.floats(0.0, 0.249), st.integers(1, 40))
def test_the_tolerated_share_is_where_the_step_changes_its_sign(seed: int, c: float, honest: int) -> None:
    """With the strongest attack, one attacker fewer than the share gives progress, one more does not."""
    X, r, cosines = round_of(seed, honest)
    share = tolerated_share(c, cosines)
    if not 0.0 < share < 0.99:
        assert (share == 0.0) == (honest_progress(c, cosines) <= 0.0)
        return
    few = int(honest * share / (1 - share) - 1e-6)
    for f, sign in ((few, 1), (few + 1, -1)):
        step = along(torch.cat([X, -r.repeat(f, 1)]), r, c)
        assert sign * step >= -1e-9


def test_values_by_hand() -> None:
    """c = 0.1: a reversed root update contributes -0.6, an honest one with x = 0.05 contributes 0.05 + 0.1 0.9025.

    beta* = 0.14025 / 0.74025. From c = 1/4 on no attacker pulls against the root.
    """
    assert largest_pull(0.1, 0.4) == pytest.approx(0.24)
    assert honest_progress(0.1, [0.05]) == pytest.approx(0.14025)
    assert tolerated_share(0.1, [0.05]) == pytest.approx(0.14025 / 0.74025)
    assert tolerated_share(0.25, [0.05, -0.99]) == 1.0
    assert tolerated_share(0.1, [-1.0]) == 0.0
    assert largest_step(0.75) == 2.0


def test_wrong_settings_are_refused() -> None:
    with pytest.raises(SettingError, match=r"largest_pull.share: 1.2 is outside \[0, 1\]"):
        largest_pull(0.1, 1.2)
    with pytest.raises(SettingError, match=r"largest_step.c: -1 is outside \[0, 1\]"):
        largest_step(-1)
