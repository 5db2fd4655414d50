"""Properties of every attack for any input: shape, dtype, finite values, unchanged input."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import dragfl
from dragfl import attacks
from dragfl.attacks import ATTACKS
from dragfl.errors import SpecError
from dragfl.rng import rng
from dragfl.testing import check_attack
from dragfl.types import FederationInfo, RoundContext, Updates, View

Function = Callable[[Any, int], Any]  # (clean updates, f) -> sent


def root(X: Any) -> Any:
    return X[0] + 0.5


def cone(X: Any) -> Any:
    """Three directions of the length of a row."""
    kind = torch.ones_like(X[:1]) if isinstance(X, torch.Tensor) else np.ones_like(X[:1])
    rows = rng(0, "cone").normal(size=(3, X.shape[1]))
    return torch.from_numpy(rows).to(kind.dtype) if isinstance(X, torch.Tensor) else rows.astype(X.dtype)


HONEST: dict[str, Function] = {
    "alie": lambda X, f: attacks.alie(X, f),
    "alie against": lambda X, f: attacks.alie(X, f, 1.0, side="against"),
    "ipm": lambda X, f: attacks.ipm(X, f, 2.0),
    "min_max": attacks.min_max,
    "min_max sign": lambda X, f: attacks.min_max(X, f, "sign"),
    "min_max std": lambda X, f: attacks.min_max(X, f, "std"),
    "min_sum": attacks.min_sum,
    "min_sum std": lambda X, f: attacks.min_sum(X, f, "std", "min"),
    "mimic": attacks.mimic,
    "mimic z": lambda X, f: attacks.mimic(X, f, z=root(X)),
    "fang_krum": attacks.fang_krum,
    "fang_krum partial": lambda X, f: attacks.fang_krum(X, f, "partial"),
    "fang_trim": lambda X, f: attacks.fang_trim(X, f, rng(0, "a")),
    "fang_trim partial": lambda X, f: attacks.fang_trim(X, f, rng(0, "a"), "partial"),
    "fang_trim weights": lambda X, f: attacks.fang_trim(X, f, rng(0, "a"), space="weights", w=root(X)),
    "adaptive_fltrust": lambda X, f: attacks.adaptive_fltrust(X, f, root(X), rng(0, "a"), rounds=1, queries=2),
    "adaptive_br_drag": lambda X, f: attacks.adaptive_br_drag(X, f, root(X), 0.25),
    "adaptive_br_drag across": lambda X, f: attacks.adaptive_br_drag(X, f, root(X), 0.5, "across"),
    "adaptive_cone": lambda X, f: attacks.adaptive_cone(X, f, cone(X)),
    "adaptive_cone root": lambda X, f: attacks.adaptive_cone(X, f, cone(X), root(X), "root"),
    "adaptive_cone class": lambda X, f: attacks.adaptive_cone(X, f, cone(X), goal="class", target=1),
}
OWN: dict[str, Function] = {
    "random_scaling": lambda X, f: attacks.random_scaling(X, 3.0, rng(0, "a")),
    "sign_flip": lambda X, f: attacks.sign_flip(X),
    "gaussian": lambda X, f: attacks.gaussian(X, 1.0, rng(0, "a")),
    "free_rider": lambda X, f: attacks.free_rider(X),
    "free_rider replay": lambda X, f: attacks.free_rider(X, "replay", change=root(X)),
    "free_rider disguised": lambda X, f: attacks.free_rider(X, "disguised", rng=rng(0, "a")),
    "backdoor_scale": lambda X, f: attacks.backdoor_scale(X, 5.0),
}
EVERY = HONEST | OWN


def test_every_attack_function_is_covered() -> None:
    functions = {name for name in attacks.__all__ if inspect.isfunction(getattr(attacks, name))}
    assert functions - {"alie_z", "non_finite"} == {name.split()[0] for name in EVERY}


@st.composite
def matrices(draw: st.DrawFn) -> np.ndarray:
    """Small (h, d) of ordinary, equal, zero, tiny, huge and one-sided numbers."""
    h, d = draw(st.integers(1, 6)), draw(st.integers(1, 5))
    numbers = st.sampled_from([0.0, 1.0, -1.0, 1e-20, 1e-6, -3.5, 1e6]) | st.floats(-10, 10)
    rows = draw(st.lists(st.lists(numbers, min_size=d, max_size=d), min_size=h, max_size=h))
    return np.array(rows, dtype=draw(st.sampled_from([np.float32, np.float64])))


@pytest.mark.parametrize("name", EVERY)
@settings(max_examples=25, deadline=None, derandomize=True)
@given(X=matrices(), f=st.integers(1, 4))
def test_shape_dtype_and_finite_values(name: str, X: np.ndarray, f: int) -> None:
    before = X.copy()
    sent = EVERY[name](X, f)
    assert isinstance(sent, np.ndarray) and sent.dtype == X.dtype
    assert sent.shape == (f if name in HONEST else len(X), X.shape[1])
    assert np.isfinite(sent).all()
    assert (before == X).all(), "its input was changed"
    tensor = EVERY[name](torch.from_numpy(X), f)
    assert isinstance(tensor, torch.Tensor) and np.array_equal(tensor.numpy(), sent)
    sent[:] = 7.0
    assert (before == X).all(), "the forged updates share memory with the input"


@pytest.mark.parametrize("name", sorted(set(HONEST) - {"mimic z"}))
def test_rows_that_are_not_finite_are_left_out(name: str) -> None:
    """Here `root` is given by hand, since it would hold a NaN."""
    X = rng(0, "x").normal(size=(5, 4))
    bad = np.vstack([X[:2], np.full((1, 4), np.nan), X[2:], np.full((1, 4), np.inf)])
    if any(word in name for word in ("adaptive", "weights")):
        r = root(X)
        calls: dict[str, Function] = {
            "adaptive_fltrust": lambda X, f: attacks.adaptive_fltrust(X, f, r, rng(0, "a"), rounds=1),
            "adaptive_cone": lambda X, f: attacks.adaptive_cone(X, f, cone(r[None])),
            "adaptive_cone root": lambda X, f: attacks.adaptive_cone(X, f, cone(r[None]), r, "root"),
            "adaptive_cone class": lambda X, f: attacks.adaptive_cone(X, f, cone(r[None]), goal="class"),
            "fang_trim weights": lambda X, f: attacks.fang_trim(X, f, rng(0, "a"), space="weights", w=r),
        }
        attack = calls.get(name, lambda X, f: attacks.adaptive_br_drag(X, f, r, 0.25))
    else:
        attack = HONEST[name]
    np.testing.assert_array_equal(attack(bad, 2), attack(X, 2))
    assert np.isfinite(attack(bad[2:3], 2)).all()


@pytest.mark.parametrize("f", [-1, 1.5, True])
def test_an_invalid_f_is_an_error(f: Any) -> None:
    with pytest.raises(SpecError, match="give the number of attackers"):
        attacks.ipm(np.ones((2, 2)), f)


OBJECTS: list[dict[str, Any]] = [
    *({"name": name} for name in ATTACKS),
    *(
        {"name": name, "knowledge": "colluding"}
        for name in ("alie", "ipm", "min_max", "min_sum", "fang_krum", "fang_trim")
    ),
    *({"name": name, "knowledge": "white_box"} for name in ("alie", "ipm")),
    *({"name": "free_rider", "kind": kind} for kind in ("replay", "disguised")),
    *({"name": name, "direction": word} for name in ("min_max", "min_sum") for word in ("sign", "std")),
    {"name": "fang_trim", "space": "weights"},
    {"name": "adaptive_br_drag", "c": 0.5, "goal": "across"},
    {"name": "adaptive_cone", "goal": "root"},
    {"name": "adaptive_cone", "goal": "class", "target": 2},
    {"name": "mimic", "client": 50},
    {"name": "gaussian", "mode": "add"},
    {"name": "non_finite", "value": "-inf", "coordinates": "one"},
]


@pytest.mark.parametrize("table", OBJECTS, ids=lambda table: " ".join(map(str, table.values())))
def test_every_setting_keeps_the_contract(table: dict[str, Any]) -> None:
    attack = dragfl.load({"attack": {"attackers": 3, **table}}).attack
    assert attack is not None
    check_attack(attack)


@pytest.mark.parametrize("table", OBJECTS, ids=lambda table: " ".join(map(str, table.values())))
def test_forged_updates_are_finite_when_honest_ones_are_not(table: dict[str, Any]) -> None:
    """The server drops these, so attackers use the rest; without any they send their own updates."""
    if table["name"] == "non_finite":
        return
    attack: Any = dragfl.load({"attack": {"attackers": 3, **table}}).attack
    info = FederationInfo(4, 9, 5, (0, 4))

    def block(rows: torch.Tensor, first: int) -> Updates:
        return Updates(rows, torch.ones(len(rows), dtype=torch.float64), torch.arange(first, first + len(rows)))

    honest = torch.from_numpy(rng(1, "h").normal(size=(4, 4)).astype(np.float32))
    for bad in ([1], [0, 1, 2, 3]):
        given = honest.clone()
        given[bad] = torch.nan
        own = block(honest[:1] + 1.0, 7)
        view = View(own, info=info, w=torch.zeros(4))
        if attack.knowledge in ("omniscient", "white_box"):
            view = View(own, block(given, 50), info, torch.zeros(4), lambda sent: sent.nanmean(0), None)
        sent, _ = attack.craft(attack.init(info), view, RoundContext(0, 0.1, 0))
        assert torch.isfinite(sent.delta).all()


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ({"name": "alie", "z": -1.0}, "attack.z: -1.0"),
        ({"name": "alie", "z": 1.0, "knowledge": "white_box"}, "none with knowledge 'white_box'"),
        ({"name": "alie", "knowledge": "own"}, "did you mean|known:"),
        ({"name": "ipm", "epsilon": 0.0}, "epsilon: 0.0; give a positive number"),
        ({"name": "ipm", "epsilon": 1.0, "knowledge": "white_box"}, "searches it; remove it"),
        ({"name": "min_max", "direction": "stdd"}, "did you mean 'std'"),
        ({"name": "mimic", "warm_up": 0}, "attack.warm_up: 0"),
        ({"name": "fang_trim", "beta": 0.5}, "beta: 0.5; give a finite number of at least 1"),
        ({"name": "fang_krum", "min_lambda": 0.0}, "attack.min_lambda: 0.0"),
        ({"name": "adaptive_br_drag", "c": 2.0}, r"attack.c: 2.0.*\[0, 1\]"),
        ({"name": "adaptive_cone", "target": -1}, "attack.target: -1.*the number of a class"),
        ({"name": "adaptive_cone", "goal": "all"}, "attack.goal: .*honest"),
        ({"name": "adaptive_fltrust", "queries": 0}, "attack.queries: 0"),
        ({"name": "free_rider", "std": -1.0}, "attack.std: -1.0"),
        ({"name": "gaussian", "std": float("nan")}, "attack.std: nan"),
    ],
)
def test_bad_settings(table: dict[str, Any], message: str) -> None:
    with pytest.raises(SpecError, match=message):
        dragfl.load({"attack": {"attackers": 3, **table}})
