"""Corrections under robust aggregates: no client writes into the model past the rule.

With forged updates and extras of 1e6 from f clients, in several directions, the step and every aggregated extra keep
the rule's own bound relative to the honest values:

- selection rules (krum, multi_krum, mda): inside the convex hull of the honest rows;
- column rules: inside the honest range of every coordinate (mea_med, bulyan: extended by its width on both sides);
- clipping and clustering rules, geometric_median: only the norm is bounded, their papers promise no more;
- dnc and caf: the honest range if all forged rows have one direction. Both filter along the direction of largest
  spread, so a second forged direction may pass; their papers bound the error only relative to the spread.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from scipy.optimize import nnls

import dragfl
from dragfl.aggregates.robust import ROBUST
from dragfl.algorithms import PARTS, PRESETS, chain
from dragfl.errors import SpecError
from dragfl.types import FederationInfo, Robust, Updates
from tests.aggregates.drive import run_rule

INFO = FederationInfo(dim=1, clients=20, per_round=20, segments=(0, 1))
CORRECTIONS = [name for name, kind in PARTS["correction"].items() if not kind().needs(kind().init(INFO)) & {"gradient"}]


def build_rule(name: str, f: int) -> Any:
    """The rule with this f, without noise, so that the bounds are exact."""
    if "+" in name:
        return chain(*name.split("+"), f=f)
    settings: dict[str, Any] = {"epsilon": float("inf")} if name == "flame" else {}
    return ROBUST[name](**settings, **({"f": f} if "f" in ROBUST[name].__dataclass_fields__ else {}))


RULES = [name for name, kind in ROBUST.items() if name != "chain" and kind().aggregates_extras]
RULES += ["nnm+median", "arc+multi_krum"]
SELECTION = ("krum", "multi_krum", "mda")
ONE_DIRECTION = ("dnc", "caf")
BOUNDED_NORM = ("geometric_median", "norm_clipping", "sign_guard", "flame", "arc+multi_krum")


def check_bound(name: str, value: torch.Tensor, honest: torch.Tensor, n: int, f: int) -> None:
    """Whether an aggregated (e,) keeps the bound of the rule, given the honest rows (h, e)."""
    slack = 1e-4 * (1.0 + float(honest.abs().max()))
    if name in SELECTION:
        assert distance_to_hull(value, honest) <= slack, name
        return
    if name in BOUNDED_NORM:
        largest, h = float(honest.norm(dim=1).max()), n - f
        if name == "geometric_median":
            largest = largest * n / h + 2 * h * (largest + largest * n / h) / (n - 2 * f)
        assert float(value.norm()) <= largest + slack, name
        return
    low, high = honest.amin(0), honest.amax(0)
    width = high - low if name in ("mea_med", "bulyan") else torch.zeros_like(low)
    assert (value >= low - width - slack).all(), name
    assert (value <= high + width + slack).all(), name


def distance_to_hull(value: torch.Tensor, rows: torch.Tensor) -> float:
    """|value - w @ rows| for the best convex weights w, by nonnegative least squares with a row for sum w = 1."""
    scale = 1.0 + float(rows.abs().max())
    A = torch.cat([rows.double().T, torch.full((1, len(rows)), scale, dtype=torch.float64)])
    b = torch.cat([value.double(), torch.tensor([scale], dtype=torch.float64)])
    return float(nnls(A.numpy(), b.numpy())[1])


def test_distance_to_hull() -> None:
    """The triangle (0,0), (2,0), (0,2): its centre is inside; (2,2) is sqrt 2 away, less with inexact weights."""
    triangle = torch.tensor([[0.0, 0.0], [2.0, 0.0], [0.0, 2.0]])
    assert distance_to_hull(torch.tensor([0.5, 0.5]), triangle) < 1e-9
    assert distance_to_hull(torch.tensor([2.0, 2.0]), triangle) > 0.5


@st.composite
def cohorts(draw: st.DrawFn, sends: dict[str, str], forge_updates: bool, directions: int) -> tuple[Updates, int]:
    """(updates with extras, f): the last f clients forge values of 1e6 and more, in one or several directions."""
    f = draw(st.integers(1, 2))
    n, d = draw(st.integers(4 * f + 3, 4 * f + 5)), draw(st.integers(1, 3))
    numbers = st.floats(-10.0, 10.0, width=32)
    signs = st.sampled_from([-1.0, 1.0])

    def rows(width: int, forge: bool) -> torch.Tensor:
        X = torch.from_numpy(draw(hnp.arrays(np.float32, (n, width), elements=numbers)).copy())
        if forge:
            direction = draw(hnp.arrays(np.float32, (min(f, directions), width), elements=signs))
            X[n - f :] = 1e6 * torch.arange(1, f + 1).unsqueeze(1) * torch.from_numpy(direction)
        return X

    extra = {name: rows(d if kind == "vector" else 1, True) for name, kind in sends.items()}
    extra = {name: value if sends[name] == "vector" else value[:, 0] for name, value in extra.items()}
    extra["buffers"] = rows(2, True)
    return Updates(rows(d, forge_updates), torch.ones(n).double(), torch.arange(n), extra, torch.full((n,), 5)), f


@pytest.mark.parametrize("forge_updates", [True, False], ids=["updates and extras", "extras only"])
@pytest.mark.parametrize("name", RULES)
@settings(max_examples=12, deadline=None)
@given(data=st.data(), correction=st.sampled_from(CORRECTIONS))
def test_forged_values_stay_within_the_bound_of_the_rule(
    name: str, forge_updates: bool, data: st.DataObject, correction: str
) -> None:
    sends = dict(PARTS["correction"][correction]().sends)
    updates, f = data.draw(cohorts(sends, forge_updates, 1 if name in ONE_DIRECTION else 2))
    n = len(updates)
    rule = build_rule(name, f)
    assert isinstance(rule, Robust) and rule.aggregates_extras
    outcome = run_rule(rule, updates)
    if forge_updates:
        check_bound(name, outcome.step, updates.delta[: n - f], n, f)
    assert outcome.partial.extra.keys() == {*sends, "buffers", "steps"}
    for key, value in updates.extra.items():
        mean = (outcome.partial.extra[key] / n).float()
        assert mean.shape == value.shape[1:]
        check_bound(name, mean.reshape(-1), value[: n - f].reshape(n - f, -1), n, f)
    assert float(outcome.partial.extra["steps"]) == 5.0 * n


@pytest.mark.parametrize("name", ["median", "multi_krum", "mda"])
def test_forged_numbers_of_local_steps_do_not_count(name: str) -> None:
    updates = Updates(
        torch.randn(9, 3), torch.ones(9).double(), torch.arange(9), {}, torch.tensor([5] * 7 + [10**6] * 2)
    )
    assert float(run_rule(build_rule(name, 2), updates).partial.extra["steps"]) == 45.0


def test_a_rule_without_attackers_aggregates_extras_as_the_mean_does() -> None:
    """trimmed_mean with f = 0 is the mean, of the extras too."""
    draws = torch.Generator().manual_seed(0)
    rows = torch.randn(7, 3, generator=draws)
    updates = Updates(rows, torch.ones(7).double(), torch.arange(7), {"dc": torch.randn(7, 3, generator=draws)})
    robust, plain = (run_rule(PARTS["aggregate"][name](), updates).partial for name in ("trimmed_mean", "mean"))
    torch.testing.assert_close(robust.extra, plain.extra, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize(
    ("algorithm", "facts"),
    [
        ({"correction": "scaffold", "aggregate": "br_drag"}, ("scaffold", "dc", "br_drag", "median")),
        ({"correction": "feddc", "aggregate": "centered_clipping"}, ("feddc", "ds", "centered_clipping")),
        ({"correction": "scaffold", "aggregate": {"name": "norm_clipping", "radius": 1.0}}, ("dc", "norm_clipping")),
        ({"correction": "scaffold", "aggregate": {"chain": ["nnm", "mean"]}}, ("dc", "chain")),
        ({"correction": "mime", "aggregate": "median"}, ("mime", "gradients", "median")),
        ({"correction": "feddc", "aggregate": "median"}, ("feddc", "median", "accuracy")),
        ({"correction": "feddc", "aggregate": {"chain": ["arc", "trimmed_mean"]}}, ("feddc", "trimmed_mean")),
        ({"correction": "scaffold", "aggregate": "dnc"}, ("scaffold", "dnc", "accuracy")),
        ({"correction": "fedcm", "aggregate": "norm_clipping"}, ("fedcm", "norm_clipping", "accuracy")),
    ],
)
def test_a_correction_that_the_rule_cannot_guard_is_refused(algorithm: Any, facts: tuple[str, ...]) -> None:
    with pytest.raises(SpecError) as error:
        dragfl.load({"algorithm": algorithm, "root": {"size": 20}})
    assert all(fact in str(error.value) for fact in ("algorithm.correction", *facts))


def test_buffers_that_the_rule_cannot_guard_are_refused_under_attack() -> None:
    tables: dict[str, Any] = {
        "algorithm": {"name": "br_drag"},
        "root": {"size": 20},
        "model": {"name": "mlp", "buffers": "average"},
    }
    dragfl.load(tables)
    with pytest.raises(SpecError, match=r"model\.buffers: 'average'.*br_drag"):
        dragfl.load({**tables, "attack": {"name": "sign_flip", "attackers": 2}})


def final_accuracy(algorithm: dict[str, Any], attacked: bool, clients: int = 10) -> float:
    """After 50 rounds on digits; 2 of the clients send -20 times their update and their extras."""
    tables: dict[str, Any] = {
        "rounds": 50,
        "clients": {"total": clients, "local_steps": 5, "lr": 0.1},
        "algorithm": algorithm,
        "evaluation": {"every": 50},
    }
    if attacked:
        tables["attack"] = {"name": "sign_flip", "scale": 20.0, "attackers": 2, "forge_extras": True}
    simulation = dragfl.simulate(dragfl.load(tables))
    *_, record = simulation
    assert torch.isfinite(simulation.state.w).all()
    assert record.accuracy is not None
    return record.accuracy


@pytest.mark.parametrize(
    ("correction", "aggregate"),
    [("feddyn", "median"), ("feddc", {"chain": ["nnm", "median"], "f": 2}), ("scaffold", "median")],
)
def test_accuracy_under_attack(correction: str, aggregate: Any) -> None:
    algorithm = {"correction": correction, "aggregate": aggregate}
    assert final_accuracy(algorithm, attacked=True) >= final_accuracy(algorithm, attacked=False) - 0.05


ALLOWED = [
    (correction, aggregate)
    for aggregate in PRESETS
    for correction in CORRECTIONS
    if aggregate in RULES and aggregate not in getattr(PARTS["correction"][correction], "unsafe_with", ())
]


@pytest.mark.slow
@pytest.mark.parametrize(("correction", "aggregate"), ALLOWED)
def test_accuracy_under_attack_of_every_composition(correction: str, aggregate: str) -> None:
    """At most 5 points below the same composition without attack; compositions that lose more are refused.

    Ten clients; Bulyan needs 4 f + 3 = 11.
    """
    rule: dict[str, Any] = {"name": aggregate}
    if "f" in ROBUST[aggregate].__dataclass_fields__:
        rule["f"] = 2
    algorithm = {"correction": correction, "aggregate": rule}
    clients = 11 if aggregate == "bulyan" else 10
    clean = final_accuracy(algorithm, attacked=False, clients=clients)
    assert final_accuracy(algorithm, attacked=True, clients=clients) >= clean - 0.05
