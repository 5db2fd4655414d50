"""A plain function as an aggregate: `(updates)` or `(updates, root)`, its settings, and what it may return."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from torch import Tensor

import dragfl
from dragfl import functional
from dragfl.aggregates.function import FunctionRule, FunctionRuleWithF, function_rule
from dragfl.aggregates.robust import Median
from dragfl.config.portable import why_not_portable
from dragfl.errors import Infeasible, Interrupted, PartError, SpecError
from dragfl.testing import check_aggregate
from dragfl.types import FederationInfo, RoundContext, RoundInputs
from tests.conftest import Load, kept_bytes
from tests.strategies import QUICK, cohorts

MODULE = '''
import numpy as np
import torch


def middle(updates):
    return (updates.amin(0) + updates.amax(0)) / 2


def trimmed(updates, f, power: int = 1):
    rows = updates.sort(0).values[f : len(updates) - f]
    return rows.mean(0) * power


def numpy_median(updates: np.ndarray) -> np.ndarray:
    return np.median(updates, axis=0)


def along_root(updates, root):
    """The mean update, projected on the root update."""
    unit = root / root.norm()
    return (updates.mean(0) @ unit) * unit


halved = lambda updates: updates.mean(0) / 2
'''

SPEC = """
rounds = 4
[root]
size = 50
[clients]
total = 6
local_steps = 2
[model]
name = "logistic"
[checkpoint]
every = 2
[algorithm]
aggregate = "own_rules_x:middle"
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    (tmp_path / "own_rules_x.py").write_text(MODULE)
    (tmp_path / "x.toml").write_text(SPEC)
    monkeypatch.chdir(tmp_path)
    yield tmp_path
    sys.modules.pop("own_rules_x", None)


def middle(updates: Tensor) -> Tensor:
    return (updates.amin(0) + updates.amax(0)) / 2


def trimmed(updates: Tensor, f: int | None = None, scale: float = 1.0) -> Tensor:
    f = f or 0
    return scale * updates.sort(0).values[f : len(updates) - f].mean(0)


def test_by_hand() -> None:
    """Columns 0, 4, 1 and 1, 2, 9: the middle between the least and the largest is 2 and 5."""
    rows = np.array([[0.0, 1.0], [4.0, 2.0], [1.0, 9.0]])
    assert functional.aggregate(middle, rows).tolist() == [2.0, 5.0]
    assert functional.aggregate(trimmed, rows, f=1, scale=2.0).tolist() == [2.0, 4.0]  # the medians 1 and 2, doubled


@QUICK
@given(cohorts(dtype=np.float32))
def test_a_function_of_the_mean_is_the_mean(drawn: tuple[Tensor, Tensor]) -> None:
    """For any cohort, in torch and in numpy."""
    rows, _ = drawn
    torch.testing.assert_close(functional.aggregate(lambda updates: updates.mean(0), rows), functional.mean(rows))
    in_numpy = functional.aggregate(lambda updates: np.asarray(updates).mean(0), rows.numpy())
    np.testing.assert_allclose(in_numpy, functional.mean(rows).numpy(), rtol=1e-5, atol=1e-3)


@pytest.mark.parametrize("function", [middle, trimmed])
def test_it_satisfies_the_contract(function: Any) -> None:
    check_aggregate(function_rule("aggregate", function, {}))


def test_a_median_agrees_with_the_built_in_median(experiment: Load) -> None:
    """Also the extras of SCAFFOLD go through the function, each separately, as through a built-in robust rule."""

    def median(updates: Tensor) -> Tensor:
        return updates.double().quantile(0.5, dim=0).float()

    def last(aggregate: Any) -> Tensor:
        simulation = dragfl.simulate(experiment(algorithm={"correction": "scaffold", "aggregate": aggregate}))
        list(simulation)
        return simulation.state.w

    torch.testing.assert_close(last(median), last(Median()), atol=1e-6, rtol=0)


def test_suspicion_is_the_distance_from_the_step() -> None:
    """Rows (0, 0) and (6, 8) have the middle (3, 4), which is 5 away from both."""
    rule = function_rule("aggregate", middle, {})
    block = dragfl.Updates(torch.tensor([[0.0, 0.0], [6.0, 8.0]]), torch.ones(2).double(), torch.arange(2))
    info = FederationInfo(dim=2, clients=2, per_round=2, segments=(0, 2))
    plan = rule.begin(rule.init(info), RoundContext(0, 0.1, 0), RoundInputs(), info)
    assert rule.fold(plan, block).per_client["suspicion"].tolist() == [5.0, 5.0]


@pytest.mark.parametrize(
    ("override", "described"),
    [
        ("algorithm.aggregate=own_rules_x:middle", {"name": "own_rules_x:middle"}),
        ("algorithm.aggregate=own_rules_x:halved", {"name": "own_rules_x:halved"}),
        ("algorithm.aggregate=own_rules_x:numpy_median", {"name": "own_rules_x:numpy_median"}),
        ("algorithm.aggregate=own_rules_x:along_root", {"name": "own_rules_x:along_root"}),
        (
            'algorithm.aggregate={name="own_rules_x:trimmed",f=2}',
            {"name": "own_rules_x:trimmed", "f": 2, "power": 1},
        ),
        (
            'algorithm.aggregate={chain=["nnm","own_rules_x:middle"],f=1}',
            {"name": "chain", "chain": ["nnm", "own_rules_x:middle"], "f": 1},
        ),
    ],
)
def test_runs_resumes_and_round_trips(folder: Path, override: str, described: dict[str, Any]) -> None:
    spec = dragfl.load("x.toml", override)
    tables = spec.tables()
    assert tables["algorithm"]["aggregate"] == described
    assert dragfl.load(tables) == spec and why_not_portable(spec, "") is None
    whole = dragfl.run(spec, "whole")
    asked = iter([False, True])
    with pytest.raises(Interrupted):
        dragfl.run(spec, "cut", should_stop=lambda: next(asked))
    sys.modules.pop("own_rules_x")
    assert kept_bytes(dragfl.resume("cut").path) == kept_bytes(whole.path)


def test_the_parameter_f_is_the_assumed_number_of_attackers(folder: Path) -> None:
    """Given nowhere, it is the number of attackers in a cohort; given in the table, it is that one."""
    attacked = ("attack.name=sign_flip", "attack.attackers=2")
    spec = dragfl.load("x.toml", "algorithm.aggregate=own_rules_x:trimmed", *attacked)
    assert isinstance(spec.algorithm.aggregate, FunctionRuleWithF) and spec.algorithm.aggregate.f == 2
    assert spec.exceeds_f == 0.0
    fixed = dragfl.load("x.toml", 'algorithm.aggregate={name="own_rules_x:trimmed",f=1}', *attacked)
    assert fixed.tables()["algorithm"]["aggregate"]["f"] == 1
    with pytest.raises(SpecError, match="f=3 needs at least 7 updates, got 6"):
        dragfl.load("x.toml", 'algorithm.aggregate={name="own_rules_x:trimmed",f=3}')


def test_in_a_chain_it_takes_the_f_of_the_chain(folder: Path) -> None:
    spec = dragfl.load("x.toml", 'algorithm.aggregate={chain=["nnm","own_rules_x:trimmed"],f=2}')
    assert spec.algorithm.aggregate.parts[-1].f == 2  # type: ignore[attr-defined]
    assert len(list(dragfl.simulate(spec))) == 4


def test_too_few_updates_for_f() -> None:
    """f is lowered by the updates that are missing; one honest of three is too few for f = 1 and none missing."""
    rule = FunctionRuleWithF(trimmed, "trimmed", {}, 1)
    assert rule.shortage(2) == "trimmed: f=1 needs at least 3 updates, got 2; lower f or raise clients.per_round"
    with pytest.raises(Infeasible):
        functional.aggregate(rule, np.ones((2, 3)))


def test_a_trusted_function_needs_root_data(folder: Path) -> None:
    (folder / "x.toml").write_text(SPEC.replace("[root]\nsize = 50\n", ""))
    with pytest.raises(SpecError, match="needs trusted root data"):
        dragfl.load("x.toml", "algorithm.aggregate=own_rules_x:along_root")
    along = {"aggregate": "own_rules_x:along_root", "correction": "scaffold"}
    with pytest.raises(SpecError, match="cannot aggregate that robustly"):
        dragfl.load({"algorithm": along, "root": {"size": 5}})


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("algorithm.aggregate.g=1", "algorithm.aggregate.g: own_rules_x:trimmed has no setting 'g'; known: power"),
        ("algorithm.aggregate.pover=1", "'pover'; did you mean 'power'"),
        ("algorithm.aggregate.power=0.5", "algorithm.aggregate.power: expected `int`, got `float` (value 0.5)"),
        ("algorithm.aggregate.f=-1", "f: -1; give a whole number of at least 0"),
        ("algorithm.aggregate.f=0.5", "f: 0.5; give a whole number of at least 0"),
    ],
)
def test_settings_are_checked(folder: Path, override: str, message: str) -> None:
    with pytest.raises(SpecError) as error:
        dragfl.load("x.toml", "algorithm.aggregate=own_rules_x:trimmed", override)
    assert message in str(error.value)


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (lambda updates: updates.mean(1), r"the step of .*<lambda> has shape \(4,\); return shape \(3,\)"),
        (lambda updates: 3.0, r"the step of .* is a float; return a tensor or numpy array of shape \(3,\)"),
        (lambda updates: None, "is a NoneType"),
        (lambda updates: np.array(["a", "b", "c"]), "is a <U1"),
        (lambda updates: updates.mean(0) / 0.0, "is not finite: 3 of 3 numbers are NaN or infinite"),
        (lambda updates: updates.mean(0).double() * 1e300, "is not finite"),
        (lambda updates: updates.nothing(), r"raised AttributeError: .*nothing.* \(test_function\.py:\d+\)"),
        (lambda updates: [][1], r"raised IndexError: list index out of range \(test_function\.py:\d+\)"),
    ],
)
def test_what_it_returns_is_checked(function: Any, message: str) -> None:
    with pytest.raises(PartError, match=message):
        functional.aggregate(function, torch.ones(4, 3))


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int64])
def test_numpy_steps_become_float32(dtype: Any, experiment: Load) -> None:
    def rounded(updates: np.ndarray) -> np.ndarray:
        return np.rint(updates.mean(0)).astype(dtype)

    simulation = dragfl.simulate(experiment(algorithm={"aggregate": rounded}))
    simulation.step()
    assert simulation.state.w.dtype == torch.float32


def changes_array(updates: np.ndarray) -> np.ndarray:
    updates[0] = 0.0
    return updates.mean(0)


def changes_view(updates: Tensor) -> np.ndarray:
    return changes_array(np.asarray(updates))  # a view, which torch does not notice


def changes_root(updates: Tensor, root: Tensor) -> Tensor:
    root.numpy()[:] = 0.0
    return updates.sum(0) + root


@pytest.mark.parametrize("function", [changes_array, changes_view, changes_root])
def test_a_function_that_changes_its_arguments_changes_only_a_copy(function: Any) -> None:
    """Three rows of ones and one of zeros have the mean 3/4; all four the sum 4. The arguments stay as they are."""
    updates, root = torch.ones(4, 3), torch.ones(3)
    step = functional.aggregate(function, updates, root=root)
    assert step.tolist() == [4.0 if function is changes_root else 0.75] * 3
    assert updates.tolist() == torch.ones(4, 3).tolist() and root.tolist() == [1.0] * 3
    check_aggregate(function_rule("rule", function, {}), skip={"permutation"})


def test_a_sparse_step() -> None:
    assert functional.aggregate(lambda updates: updates.mean(0).to_sparse(), torch.eye(2)).tolist() == [0.5, 0.5]


@pytest.mark.parametrize("function", [lambda: 1, lambda *, updates: updates.mean(0)])
def test_functions_of_no_updates(function: Any, experiment: Load) -> None:
    with pytest.raises(SpecError, match="takes no updates; a rule is a function"):
        experiment(algorithm={"aggregate": function})


def test_objects_classes_and_tables_of_them(experiment: Load) -> None:
    """The function itself, a table with it, a class, and a class with its settings."""
    one = experiment(algorithm={"aggregate": {"name": trimmed, "f": 1}}).algorithm
    assert one.aggregate == FunctionRuleWithF(trimmed, f"{__name__}:trimmed", {"scale": 1.0}, 1)
    assert isinstance(experiment(algorithm={"aggregate": middle}).algorithm.aggregate, FunctionRule)
    assert experiment(algorithm={"aggregate": Median}).algorithm.aggregate == Median()
    assert experiment(algorithm={"name": middle}).algorithm.name == f"{__name__}:middle"
