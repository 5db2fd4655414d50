"""An attack sees what its level of knowledge grants, no less and no more."""

from __future__ import annotations

import pytest
import torch

import dragfl
from dragfl.errors import SpecError
from dragfl.types import Knowledge
from tests.conftest import Load
from tests.engine.custom_attacks import Honest, Patient, Sends
from tests.engine.plain_sgd import cohort_updates

BLOCKS = [1, 4, 20]


def attacked(experiment: Load, attack: object, block: int, count: int = 3) -> dragfl.Experiment:
    return experiment(attack={"name": attack, "attackers": count}, engine={"block": block})


@pytest.mark.parametrize("block", BLOCKS)
def test_own_sees_itself_alone(experiment: Load, block: int) -> None:
    attack = Honest("own")
    simulation = dragfl.simulate(attacked(experiment, attack, block))
    w = simulation.state.w
    simulation.step()
    clean = cohort_updates(simulation, w, 0)
    assert [view.own.client.tolist() for view in attack.views] == [
        [m] for m in sorted(simulation.federation.adversary.fixed)
    ]
    for view in attack.views:
        torch.testing.assert_close(view.own.delta, clean[view.own.client], atol=2e-6, rtol=0)
        assert view.honest is None


@pytest.mark.parametrize("block", BLOCKS)
def test_colluders_see_each_other(experiment: Load, block: int) -> None:
    attack = Honest("colluding")
    simulation = dragfl.simulate(attacked(experiment, attack, block))
    w = simulation.state.w
    simulation.step()
    (view,) = attack.views
    liars = sorted(simulation.federation.adversary.fixed)
    assert view.own.client.tolist() == liars
    torch.testing.assert_close(view.own.delta, cohort_updates(simulation, w, 0)[liars], atol=2e-6, rtol=0)
    assert view.honest is None


@pytest.mark.parametrize("block", BLOCKS)
def test_the_omniscient_see_the_honest_too(experiment: Load, block: int) -> None:
    attack = Honest("omniscient")
    simulation = dragfl.simulate(attacked(experiment, attack, block))
    w = simulation.state.w
    simulation.step()
    (view,) = attack.views
    honest = sorted(set(range(6)) - simulation.federation.adversary.fixed)
    assert view.own.client.tolist() == sorted(simulation.federation.adversary.fixed)
    assert view.honest is not None
    assert view.honest.client.tolist() == honest
    torch.testing.assert_close(view.honest.delta, cohort_updates(simulation, w, 0)[honest], atol=2e-6, rtol=0)
    assert view.info == simulation.federation.info


@pytest.mark.parametrize("knowledge", ["own", "colluding", "omniscient"])
def test_a_label_alone_changes_nothing(experiment: Load, knowledge: Knowledge) -> None:
    """Rules must not know who attacks: marked but sending the truth, the run has the same bits."""
    for algorithm in ("fedavg", "drag"):
        runs = []
        for count in (0, 3):
            attack = {"name": Honest(knowledge), "attackers": count}
            simulation = dragfl.simulate(experiment(algorithm={"name": algorithm}, attack=attack, engine={"block": 4}))
            records = [{k: v for k, v in record.metrics.items() if k != "attackers"} for record in simulation]
            runs.append((records, simulation.state.w))
        assert runs[0][0] == runs[1][0]
        assert torch.equal(runs[0][1], runs[1][1])


def test_an_attack_keeps_its_state(experiment: Load) -> None:
    """Patient sends the truth twice and strikes in the third round."""
    simulation = dragfl.simulate(attacked(experiment, Patient(), 4, count=6))
    for t, sign in enumerate((1, 1, -1)):
        w = simulation.state.w
        simulation.step()
        step = cohort_updates(simulation, w, t).mean(0)
        torch.testing.assert_close(simulation.state.w, w + sign * step, atol=2e-6, rtol=0)
    assert simulation.state.attack.rounds == 3


def test_nobody_sampled_attacks(experiment: Load) -> None:
    attack = Honest("omniscient")
    list(dragfl.simulate(experiment(attack={"name": attack, "attackers": 1}, clients={"per_round": 1}, rounds=6)))
    assert len(attack.views) < 6, "in most rounds the one attacker is not the one sampled"


def test_a_wrong_shape_is_told(experiment: Load) -> None:
    class Short(Sends):
        def craft(self, state, view, context):  # type: ignore[no-untyped-def]
            from dataclasses import replace

            return replace(view.own, delta=view.own.delta[:, :5]), state

    with pytest.raises(SpecError, match=r"attack: .*shape \(3, 5\).*\(3, 21\)"):
        dragfl.simulate(attacked(experiment, Short(1.0), 20)).step()
