"""The default f of a robust rule, and the probability that a cohort has more attackers."""

from __future__ import annotations

import itertools
import tomllib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import dragfl
from dragfl.aggregates.robust.bulyan import Bulyan
from dragfl.aggregates.robust.coordinate_wise import TrimmedMean
from dragfl.aggregates.robust.krum import Krum
from dragfl.aggregates.robust.rlr import RLR
from dragfl.algorithms import chain
from dragfl.config.assumed_f import count_cohorts, default_f, largest_f, probability_above, smallest_f
from dragfl.config.compare import comparable
from dragfl.config.tables import Attackers, Clients
from dragfl.errors import SpecError

EIGHT_OF_40 = Attackers(attackers=8)
TEN_OF_40 = Clients(total=40, per_round=10)
COHORTS = 847_660_528  # C(40, 10)


def experiment(algorithm: Any, *overrides: str, **attack: Any) -> dragfl.Experiment:
    """8 of 40 clients attack, and 10 are sampled."""
    tables = {
        "clients": {"total": 40, "per_round": 10},
        "algorithm": algorithm,
        "attack": {"name": "sign_flip", **(attack or {"attackers": 8})},
    }
    return dragfl.load(tables, *overrides)


def test_the_number_of_attackers_in_a_cohort() -> None:
    """C(8, k) C(32, 10 - k): for k = 2 it is 28 x 10,518,300, for k = 8 it is 1 x 496 = C(32, 2)."""
    ways = (64_512_240, 224_390_400, 294_512_400, 188_487_936, 63_433_440, 11_277_056, 1_006_880, 39_680, 496)
    assert sum(ways) == COHORTS
    assert count_cohorts(8, 40, 10) == tuple(sum(ways[k:]) for k in range(9)), "with at least k attackers"


def test_a_cohort_may_have_attackers_always() -> None:
    """3 of 4 clients attack and 3 are sampled: C(3, 2) C(1, 1) = 3 cohorts with 2 attackers, and 1 with 3."""
    assert count_cohorts(3, 4, 3) == (4, 4, 4, 1)


def test_a_large_cohort() -> None:
    """5,000 of 100,000 clients, 20 % of them malicious: mean 1000, deviation 27.6, so about 1000 + 2.33 x 27.6."""
    clients = Clients(total=100_000, per_round=5000)
    assert default_f(TrimmedMean(), Attackers(fraction=0.2), clients) == 1065


@pytest.mark.parametrize(
    ("f", "above"),
    [(2, 264_245_488), (3, 75_757_552), (4, 12_324_112), (5, 1_047_056), (8, 0)],
)
def test_the_probability_of_more_than_f_attackers(f: int, above: int) -> None:
    """The sums of the numbers above: 31.2 %, 8.94 %, 1.45 %, 0.124 % and 0 of the cohorts.

    For f = 5: 1,006,880 + 39,680 + 496 = 1,047,056. So the 0.99 quantile is 5: more than 4 is too frequent.
    """
    assert probability_above(f, EIGHT_OF_40, TEN_OF_40) == above / COHORTS


@pytest.mark.parametrize(
    ("rule", "f", "exceeds"),
    [
        ("rlr", 5, 0.00124),  # admits any f: the quantile
        ("trimmed_mean", 4, 0.0145),  # 2f + 1 <= 10
        ("krum", 3, 0.0894),  # 2f + 3 <= 10
        ("bulyan", 1, 0.659),  # 4f + 3 <= 10; 1 - (64,512,240 + 224,390,400) / 847,660,528
    ],
)
def test_the_default_f_is_the_quantile_or_the_largest_that_the_rule_admits(rule: str, f: int, exceeds: float) -> None:
    resolved = experiment({"name": rule})
    assert resolved.algorithm.aggregate.f == f  # type: ignore[attr-defined]
    assert resolved.exceeds_f == exceeds
    written = tomllib.loads(resolved.to_toml())
    assert (written["algorithm"]["aggregate"]["f"], written["attack"]["exceeds_f"]) == (f, exceeds)


@pytest.mark.parametrize(
    ("clients", "attack", "f"),
    [
        ({"total": 20}, None, 0),
        ({"total": 20}, {"attackers": 3}, 3),  # all clients are sampled, so the number is fixed
        ({"total": 20}, {"attackers": 10}, 9),  # 2f + 1 <= 20
        ({"total": 20, "per_round": 10}, {"attackers": 3}, 3),  # C(17, 7) / C(20, 10) = 10.5 % have all three
        ({"total": 20, "per_round": 10}, {"attackers": 3, "redraw": True}, 3),
        ({"total": 20, "per_round": 10}, {"attackers": 3, "redraw": True, "counted_in": "all"}, 3),
        ({"total": 20, "per_round": 10}, {"attackers": 1, "counted_in": "sampled"}, 2),  # 2 of 20: 23.7 % have both
        ({"total": 1000, "per_round": 10}, {"attackers": 1}, 0),  # one cohort in 100 has it: exactly the quantile
        ({"total": 999, "per_round": 10}, {"attackers": 1}, 1),
    ],
)
def test_the_default_f_of_the_trimmed_mean(clients: Any, attack: Any, f: int) -> None:
    tables: dict[str, Any] = {"clients": clients, "algorithm": {"name": "trimmed_mean"}}
    if attack:
        tables["attack"] = {"name": "random_scaling", **attack}
    assert dragfl.load(tables).algorithm.aggregate == TrimmedMean(f)
    assert dragfl.load(tables, "algorithm.f=1").algorithm.aggregate == TrimmedMean(1)


def test_attackers_drawn_from_the_cohort_have_a_fixed_number() -> None:
    assert experiment({"name": "krum"}, attackers=3, redraw=True).exceeds_f == 0.0
    assert experiment({"name": "krum"}, attackers=4, redraw=True).exceeds_f == 1.0  # Krum admits 3


def test_a_given_f_is_kept_and_its_probability_computed() -> None:
    resolved = experiment({"name": "krum", "f": 2})
    assert resolved.algorithm.aggregate == Krum(2)
    assert resolved.exceeds_f == 0.312


@pytest.mark.parametrize(
    ("rule", "n", "f"),
    [
        (Krum(), 10, 3), (Krum(), 2, 0), (Bulyan(), 11, 2), (TrimmedMean(), 10, 4), (RLR(), 10, 10),
        (chain("nnm", "krum"), 10, 3),
        (chain("bucketing", "krum"), 20, 3),  # 10 buckets
        (chain("nnm", {"name": "trimmed_mean", "f": 1}), 10, 4),  # NNM decides
        (chain("nnm", {"name": "krum", "f": 4}), 10, 0),  # no f of the chain helps
    ],
)  # fmt: skip
def test_the_largest_f_that_a_rule_admits(rule: Any, n: int, f: int) -> None:
    assert largest_f(rule, n, n) == f


def test_the_f_of_a_chain() -> None:
    """The smallest f of its parts counts: more attackers are too many for that part."""
    assert smallest_f(chain("nnm", "trimmed_mean", f=4)) == 4
    assert smallest_f(chain("nnm", {"name": "trimmed_mean", "f": 1}, f=4)) == 1
    assert smallest_f(chain({"name": "bucketing"}, "median", f=4)) == 4
    assert experiment({"aggregate": {"chain": ["nnm", {"name": "krum", "f": 2}]}}).exceeds_f == 0.312


def test_without_an_attack_or_an_f_there_is_no_probability() -> None:
    for resolved in (experiment({"name": "fedavg"}), experiment({"name": "krum"}, "attack.name=none")):
        assert resolved.exceeds_f is None
        assert "exceeds_f" not in resolved.tables().get("attack", {})


class TestTheResolvedSpec:
    def test_loads_again(self) -> None:
        resolved = experiment({"name": "krum"})
        assert dragfl.load(tomllib.loads(resolved.to_toml())) == resolved

    @pytest.mark.parametrize(
        "override", ["attack.attackers=4", "clients.per_round=12", "algorithm.aggregate.f=1", "attack.name=alie"]
    )
    def test_an_override_computes_the_probability_again(self, override: str) -> None:
        """f was resolved before, so it stays where the override does not set it."""
        tables = experiment({"name": "krum"}).tables()
        changed = dragfl.load(tables, override)
        f = changed.algorithm.aggregate.f  # type: ignore[attr-defined]
        assert f == (1 if override == "algorithm.aggregate.f=1" else 3)
        assert changed.exceeds_f == pytest.approx(probability_above(f, changed.attackers, changed.clients), rel=0.01)

    def test_another_rule_has_none(self) -> None:
        tables = experiment({"name": "krum"}).tables()
        assert dragfl.load(tables, "algorithm.name=fedavg").exceeds_f is None

    @pytest.mark.parametrize(
        ("algorithm", "message"),
        [
            ("krum", "attack.exceeds_f: 0.05 given, but it is 0.0894 for these settings; remove exceeds_f"),
            ("fedavg", "attack.exceeds_f: 0.05 given, but there is none for these settings; remove exceeds_f"),
        ],
    )
    def test_a_wrong_value_is_refused(self, algorithm: str, message: str) -> None:
        with pytest.raises(SpecError) as error:
            experiment({"name": algorithm}, attackers=8, exceeds_f=0.05)
        assert str(error.value) == message

    def test_the_probability_is_no_setting_of_the_result(self) -> None:
        tables = experiment({"name": "krum"}).tables()
        older = {**tables, "attack": {k: v for k, v in tables["attack"].items() if k != "exceeds_f"}}
        assert comparable(tables) == comparable(older)


@given(st.integers(1, 9), st.data())
def test_the_probability_agrees_with_all_cohorts(total: int, data: st.DataObject) -> None:
    """Enumerate every cohort of at most 9 clients, of which the first ones are malicious."""
    sampled, attackers = data.draw(st.integers(1, total)), data.draw(st.integers(0, total))
    cohorts = list(itertools.combinations(range(total), sampled))
    for f in range(sampled + 1):
        above = sum(sum(m < attackers for m in cohort) > f for cohort in cohorts)
        given = probability_above(f, Attackers(attackers=attackers), Clients(total=total, per_round=sampled))
        assert given == above / len(cohorts)


@given(st.integers(1, 40), st.data())
def test_the_default_f_is_the_smallest_that_is_rarely_exceeded(total: int, data: st.DataObject) -> None:
    sampled, attackers = data.draw(st.integers(1, total)), Attackers(attackers=data.draw(st.integers(0, total)))
    clients = Clients(total=total, per_round=sampled)
    f, largest = default_f(TrimmedMean(), attackers, clients), largest_f(TrimmedMean(), sampled, sampled)
    assert f <= largest
    assert f == largest or probability_above(f, attackers, clients) <= 0.01
    assert f == 0 or probability_above(f - 1, attackers, clients) > 0.01
