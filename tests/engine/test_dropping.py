"""Updates that are not finite are dropped and counted; a model that is lost stops the run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

import dragfl
from dragfl.errors import Diverged
from dragfl.types import Knowledge
from tests.conftest import Load
from tests.engine.custom_attacks import Sends
from tests.engine.plain_sgd import cohort_updates

NAN, INF = float("nan"), float("inf")
RULES: list[dict[str, Any]] = [
    {"algorithm": {"name": "fedavg"}},
    {"algorithm": {"name": "drag"}},
    {"algorithm": {"name": "br_drag"}, "root": {"size": 20}},
    {"algorithm": {"name": "fltrust"}, "root": {"size": 20}},
]


@pytest.mark.parametrize("value", [NAN, INF, -INF])
@pytest.mark.parametrize("knowledge", ["own", "omniscient"])
def test_dropped_and_counted(experiment: Load, value: float, knowledge: Knowledge) -> None:
    attack = {"name": Sends(value, knowledge), "attackers": 2}
    simulation = dragfl.simulate(experiment(attack=attack, engine={"block": 4}))
    w = simulation.state.w
    record = simulation.step()
    liars = simulation.federation.adversary.fixed
    honest = [m for m in range(6) if m not in liars]
    torch.testing.assert_close(
        simulation.state.w, w + cohort_updates(simulation, w, 0)[honest].mean(0), atol=2e-6, rtol=0
    )
    assert (record.metrics["sampled"], record.metrics["used"], record.metrics["dropped_nonfinite"]) == (6, 4, 2)
    assert record.clients["dropped"] == [m in liars for m in range(6)]
    assert [value is None for value in record.clients["norm"]] == record.clients["dropped"]


@pytest.mark.parametrize("changes", RULES, ids=lambda c: c["algorithm"]["name"])
@pytest.mark.parametrize("block", [2, 20])
def test_all_dropped_leaves_everything_as_it_was(experiment: Load, changes: dict[str, Any], block: int) -> None:
    attack = {"name": Sends(NAN), "attackers": 6}
    simulation = dragfl.simulate(experiment(**changes, attack=attack, engine={"block": block}))
    before = simulation.state
    record = simulation.step()
    assert torch.equal(simulation.state.w, before.w)
    assert simulation.state.aggregate == before.aggregate
    assert simulation.state.t == 1
    assert record.metrics["skipped"] == "no usable update"
    assert record.metrics["dropped_nonfinite"] == 6
    assert record.accuracy is not None
    json.dumps([record.metrics, record.clients], allow_nan=False)


def test_a_huge_but_finite_update_is_used(experiment: Load) -> None:
    """1e30 squared overflows float32, yet the row is finite: BR-DRAG cuts it to the length of the root update."""
    attack = {"name": Sends(1e30), "attackers": 2}
    simulation = dragfl.simulate(experiment(algorithm={"name": "br_drag"}, root={"size": 20}, attack=attack))
    record = simulation.step()
    assert record.metrics["dropped_nonfinite"] == 0
    assert simulation.state.w.norm() < 10


class TestDiverged:
    def test_says_when_and_what_to_do(self, experiment: Load, tmp_path: Path) -> None:
        attack = {"name": Sends(1e15), "attackers": 1}
        with pytest.raises(Diverged, match=r"diverged in round 1: the model has norm .*lower clients.lr") as error:
            dragfl.run(experiment(attack=attack), tmp_path / "r")
        run = dragfl.load_run(tmp_path / "r")
        assert run.finished
        assert run.result is not None
        assert run.result["stopped_by"] == "diverged"
        assert run.result["message"] == str(error.value)
        assert run.result["rounds"] == 0

    def test_the_checkpoint_is_from_before(self, experiment: Load, tmp_path: Path) -> None:
        """Attackers grow tenfold a round until the model is lost."""
        with pytest.raises(Diverged, match=r"diverged in round (\d+)") as error:
            dragfl.run(
                experiment(rounds=60, attack={"name": Growing(), "attackers": 2}, checkpoint={"every": 1}),
                tmp_path / "r",
            )
        lost = int(str(error.value).split("round ")[1].split(":")[0])
        assert lost > 2
        table = json.loads((tmp_path / "r" / "checkpoint.json").read_text())
        assert table["round"] == lost - 1
        assert torch.isfinite(load_file(tmp_path / "r" / table["tensors"])["w"]).all()
        run = dragfl.load_run(tmp_path / "r")
        assert len(run.metrics) == lost - 1
        with pytest.raises(Diverged, match="there is no final model, the run diverged in round"):
            run.model()

    def test_resume_tells_the_same(self, experiment: Load, tmp_path: Path) -> None:
        spec = experiment(attack={"name": Sends(1e15), "attackers": 1})
        with pytest.raises(Diverged):
            dragfl.run(spec, tmp_path / "r")
        assert dragfl.resume(tmp_path / "r", spec).result == dragfl.load_run(tmp_path / "r").result


class Growing(Sends):
    def __init__(self) -> None:
        super().__init__(0.0)

    def craft(self, state, view, context):  # type: ignore[no-untyped-def]
        from dataclasses import replace

        return replace(view.own, delta=view.own.delta * 10.0**context.t), state
