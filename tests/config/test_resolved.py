"""The resolved spec is complete: reading it back gives the same experiment."""

from __future__ import annotations

import tomllib
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

import dragfl
from dragfl.aggregates import Drag
from dragfl.algorithms import PRESETS
from dragfl.attacks import RandomScaling
from dragfl.data.partitions import PARTITIONS
from dragfl.schedules import Schedule

shares = st.floats(0.01, 1.0)
numbers = st.one_of(
    shares,
    st.fixed_dictionaries({"kind": st.just("inverse_sqrt"), "start": shares, "period": st.floats(0.5, 100.0)}),
    st.fixed_dictionaries(
        {"kind": st.sampled_from(["linear", "cosine"]), "start": shares, "end": shares, "rounds": st.integers(1, 500)}
    ),
)
algorithms = st.one_of(
    st.fixed_dictionaries({"name": st.sampled_from(sorted(PRESETS))}),
    st.fixed_dictionaries(
        {"name": st.just("drag"), "c": numbers, "alpha": shares},
        optional={"variant": st.sampled_from(["paper", "authors"]), "divergence": st.sampled_from(["linear", "angle"])},
    ),
    st.fixed_dictionaries(
        {
            "aggregate": st.one_of(
                st.just("fltrust"), st.fixed_dictionaries({"name": st.just("br_drag"), "c": numbers})
            ),
            "server": st.one_of(st.just("sgd"), st.fixed_dictionaries({"name": st.just("momentum"), "lr": numbers})),
        }
    ),
)
attacks = st.one_of(
    st.none(),
    st.fixed_dictionaries(
        {"name": st.just("random_scaling"), "attackers": st.integers(0, 3)},
        optional={"std": shares, "per_tensor": st.booleans(), "redraw": st.booleans()},
    ),
    st.fixed_dictionaries({"name": st.just("sign_flip"), "attackers": st.integers(0, 3)}, optional={"scale": shares}),
)
partitions = st.one_of(
    st.sampled_from(["iid", "sorted_shards"]),
    st.fixed_dictionaries({"kind": st.just("dirichlet_class"), "a": st.floats(0.1, 10.0)}),
)
specs = st.fixed_dictionaries(
    {
        "seed": st.integers(0, 2**63 - 1),
        "rounds": st.integers(1, 1000),
        "algorithm": algorithms,
        "root": st.fixed_dictionaries(
            {"size": st.integers(1, 500)},
            optional={
                "source": st.sampled_from(["train", "test"]),
                "accumulate": st.booleans(),
                "fixed_batch": st.integers(1, 9),
            },
        ),
        "data": st.fixed_dictionaries({"partition": partitions}),
        "clients": st.fixed_dictionaries(
            {"total": st.integers(3, 50), "lr": numbers},
            optional={
                "per_round": st.just(3),
                "local_steps": st.one_of(st.integers(1, 9), st.tuples(st.integers(1, 3), st.integers(3, 9)).map(list)),
                "sampling": st.sampled_from(["replacement", "epoch"]),
            },
        ),
        "attack": attacks,
        "model": st.one_of(
            st.just({"name": "logistic", "double_softmax": True}),
            st.fixed_dictionaries({"name": st.just("mlp"), "hidden": st.integers(1, 900)}),
        ),
    },
    optional={"target_accuracy": shares, "name": st.sampled_from(["run", "a run", "emnist-47"])},
)  # fmt: skip


@settings(max_examples=150, deadline=None)
@given(specs)
def test_resolving_twice_is_resolving_once(spec: dict[str, Any]) -> None:
    experiment = dragfl.load({k: v for k, v in spec.items() if v is not None})
    tables = experiment.tables()
    assert dragfl.load(tables) == experiment
    assert tomllib.loads(experiment.to_toml()) == _plain(tables)
    assert dragfl.load(tomllib.loads(experiment.to_toml())).tables() == tables


def _plain(value: Any) -> Any:
    """Tuples as TOML has them."""
    if isinstance(value, dict):
        return {k: _plain(v) for k, v in value.items()}
    return [_plain(v) for v in value] if isinstance(value, tuple | list) else value


def test_every_default_is_spelled_out() -> None:
    tables = dragfl.load({}).tables()
    assert tables["clients"] == {
        "total": 20, "per_round": 20, "local_steps": 5, "batch_size": 20, "lr": 0.1, "sampling": "replacement",
        "momentum": 0.0, "weight_decay": 0.0, "augment": "none", "availability": 1.0,
    }  # fmt: skip
    assert tables["algorithm"]["aggregate"] == {"name": "mean", "weighting": "uniform"}
    assert tables["model"] == {"name": "mlp", "hidden": 500, "double_softmax": False, "buffers": "refuse"}


def test_objects_in_place_of_names(toy: dragfl.Dataset) -> None:
    """Every name of a spec may be the object itself, and the resolved spec has its name."""
    rule, attack, partition = Drag(c=0.1), RandomScaling(std=2.0), PARTITIONS["sorted_shards"]()
    experiment = dragfl.load(
        {
            "data": {"dataset": toy, "partition": partition},
            "algorithm": {"aggregate": rule},
            "attack": {"name": attack, "attackers": 1},
        }
    )
    assert experiment.dataset is toy
    assert experiment.algorithm.aggregate is rule
    assert experiment.attack is attack
    tables = experiment.tables()
    assert tables["algorithm"]["aggregate"]["c"] == 0.1
    assert tables["attack"] == {
        "name": "random_scaling", "variance": 3.0, "std": 2.0, "per_tensor": False, "attackers": 1, "redraw": False,
        "forge_extras": False,
    }  # fmt: skip
    assert tables["data"] == {"dataset": "object:toy", "partition": {"kind": "sorted_shards"}}


def test_schedules_come_back(tmp_path: Any) -> None:
    experiment = dragfl.load(
        {"algorithm": {"name": "drag", "c": {"kind": "inverse_sqrt", "start": 0.25, "period": 10.0}}}
    )
    assert experiment.algorithm.aggregate.c == Schedule(0.25, "inverse_sqrt", period=10.0)  # type: ignore[attr-defined]
    assert dragfl.load(tomllib.loads(experiment.to_toml())) == experiment
