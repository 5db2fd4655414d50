"""The adaptive attacks: optima against brute force."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from dragfl import attacks, functional
from dragfl.attacks.adaptive_br_drag import best_cosine
from dragfl.attacks.fang_trim import fang_trim
from dragfl.errors import SpecError
from dragfl.rng import rng

GRID = np.linspace(-1.0, 1.0, 200_001)


@pytest.mark.parametrize(
    ("c", "goal", "x", "value"),
    [
        (0.0, "along", -1.0, -1.0),
        (0.1, "along", -1.0, -0.6),
        (0.25, "along", -1.0, 0.0),
        (0.5, "along", 0.0, 0.5),
        (1.0, "along", 0.5, 0.75),
        (0.0, "across", 0.0, 1.0),
        (0.25, "across", 0.2808, 0.7872),
        (0.5, "across", 0.5, 0.6495),
    ],
)
def test_the_best_cosine_against_br_drag(c: float, goal: str, x: float, value: float) -> None:
    """By brute force over x of what v = (1 - lambda) e + lambda rhat does along r, and across it."""
    lam = c * (1.0 - GRID)
    if goal == "along":
        effect = (1.0 - lam) * GRID + lam
        best = int(effect.argmin())
    else:
        effect = (1.0 - lam) * np.sqrt(1.0 - GRID**2)
        best = int(effect.argmax())
    assert effect[best] == pytest.approx(value, abs=5e-5)
    found = best_cosine(c, goal)  # type: ignore[arg-type]
    assert found == pytest.approx(x, abs=5e-5)
    assert found == pytest.approx(GRID[best], abs=1e-2 if (c, goal) == (0.25, "along") else 1e-4)


@pytest.mark.parametrize("c", [0.0, 0.1, 0.25, 0.4, 0.5])
def test_no_other_forged_update_does_more_damage_to_br_drag(c: float) -> None:
    """Against the rule itself: of 500 random updates none moves one attacker's step further back, or further away."""
    draws = rng(0, "forged")
    r, honest = draws.normal(size=6), draws.normal(size=(4, 6))
    rhat = r / np.linalg.norm(r)

    def effect(forged: np.ndarray) -> tuple[float, float]:
        v = functional.br_drag(forged[None], r, c)
        along = float(v @ rhat)
        return along, float(np.linalg.norm(v - along * rhat))

    tried = [effect(draws.normal(size=6)) for _ in range(500)]
    back = effect(attacks.adaptive_br_drag(honest, 1, r, c)[0])[0]
    away = effect(attacks.adaptive_br_drag(honest, 1, r, c, goal="across")[0])[1]
    assert back <= min(along for along, _ in tried) + 1e-9
    assert away >= max(off for _, off in tried) - 1e-9
    size = np.linalg.norm(r)
    assert back == pytest.approx(size * ((4 * c - 1) if c <= 0.25 else 1 - 1 / (4 * c)))


def test_across_takes_the_side_opposite_to_the_honest_updates() -> None:
    r = np.array([2.0, 0.0, 0.0])
    honest = np.array([[1.0, 1.0, 0.0], [1.0, 3.0, 0.0]])
    sent = attacks.adaptive_br_drag(honest, 2, r, 0.5, goal="across")
    np.testing.assert_allclose(sent, [[1.0, -math.sqrt(3.0), 0.0]] * 2, atol=1e-12)
    np.testing.assert_allclose(attacks.adaptive_br_drag(honest, 1, r, 0.1), [[-2.0, 0.0, 0.0]], atol=1e-12)


def test_adaptive_br_drag_edge_cases() -> None:
    r, honest = torch.tensor([3.0, 0.0]), torch.tensor([[1.0, 0.0]])  # the honest mean is along r
    sent = attacks.adaptive_br_drag(honest, 1, r, 0.5, goal="across")
    assert float(sent.norm()) == pytest.approx(3.0) and abs(float(sent[0, 1])) == pytest.approx(3 * 0.75**0.5)
    assert attacks.adaptive_br_drag(torch.ones(2, 1), 1, torch.tensor([2.0]), 0.5).tolist() == [[-2.0]]
    assert attacks.adaptive_br_drag(honest, 2, torch.zeros(2), 0.25).tolist() == [[-1.0, 0.0]] * 2


def damage(honest: np.ndarray, sent: np.ndarray, root: np.ndarray) -> float:
    """s . (clean step - step), both by FLTrust itself."""
    clean = functional.fltrust(honest, root)
    return float(np.sign(clean) @ (clean - functional.fltrust(np.vstack([honest, sent]), root)))


@pytest.mark.parametrize("seed", range(4))
def test_the_ascent_increases_the_damage(seed: int) -> None:
    """The objective h is the damage to FLTrust's own step; the ascent never ends below its start."""
    draws = rng(seed, "h")
    root, f = draws.normal(size=12), 3
    honest = root + draws.normal(size=(7, 12))
    start = fang_trim(honest, f, rng(seed, "a"))
    sent = attacks.adaptive_fltrust(honest, f, root, rng(seed, "a"))
    np.testing.assert_allclose(np.linalg.norm(sent, axis=1), np.linalg.norm(root))
    assert damage(honest, sent, root) >= damage(honest, start, root)
    longer = attacks.adaptive_fltrust(honest, f, root, rng(seed, "a"), rounds=60)
    assert damage(honest, longer, root) > max(0.0, damage(honest, start, root)) + 0.5
    assert damage(honest, longer, root) >= damage(honest, sent, root)


def test_the_ascent_nears_the_optimum_in_the_plane() -> None:
    """d = 2, one attacker: brute force over the angle of its update."""
    root = np.array([1.0, 0.2])
    honest = np.array([[1.0, 0.5], [0.8, -0.1], [1.2, 0.3]])
    angles = np.linspace(0.0, 2 * np.pi, 2001)
    best = max(damage(honest, np.array([[np.cos(a), np.sin(a)]]), root) for a in angles)
    sent = attacks.adaptive_fltrust(honest, 1, root, rng(0, "a"), rounds=100)
    assert best > 0.15
    assert damage(honest, sent, root) >= 0.98 * best


def test_a_zero_root_update_is_answered_with_zero_updates() -> None:
    assert (attacks.adaptive_fltrust(np.ones((3, 4)), 2, np.zeros(4), rng(0, "a")) == 0.0).all()


def test_adaptive_cone_takes_the_most_opposed_direction_of_the_cone() -> None:
    """u_1 = (1, 0), u_2 = (-0.6, 0.8); h = (3, 1), so |h| w <z, h/|h|> is, with |g| = sqrt 10:

    u_1: x = 1; -u_1 has the cosine 0.6 with u_2 and -1 with u_1, so x^- = 0.6, w = 0.4, w <u_1, h> = 1.2.
    u_2: x = 1; -u_2 has the cosine 0.6 with u_1, so x^- = 0.6, w = 0.4, w <u_2, h> = 0.4 (-1.8 + 0.8) = -0.4.
    The projection of -h = (-3, -1) on the cone: its cosine with u_2 is positive, with u_1 negative, so it is along u_2.
    """
    honest = torch.tensor([[3.0, 1.0], [3.0, 1.0]])
    directions = torch.tensor([[2.0, 0.0], [-3.0, 4.0]])
    sent = attacks.adaptive_cone(honest, 2, directions)
    torch.testing.assert_close(sent, 10**0.5 * torch.tensor([[-0.6, 0.8]] * 2))
    against_root = attacks.adaptive_cone(honest, 1, directions, torch.tensor([-1.0, 1.0]), "root")
    torch.testing.assert_close(against_root, 10**0.5 * torch.tensor([[1.0, 0.0]]))
    one_class = attacks.adaptive_cone(honest, 1, directions, goal="class", target=1)
    torch.testing.assert_close(one_class, 10**0.5 * torch.tensor([[-0.6, 0.8]]))


def test_adaptive_cone_without_a_cone_reverses_the_mean() -> None:
    honest = torch.tensor([[3.0, 1.0], [1.0, 1.0]])
    assert attacks.adaptive_cone(honest, 1, torch.zeros(2, 2)).tolist() == [[-2.0, -1.0]]
    with pytest.raises(SpecError, match=r"directions are \(2,\)"):
        attacks.adaptive_cone(honest, 1, torch.zeros(2))
