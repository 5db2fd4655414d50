"""Attackers: which clients attack, what their attack sees, and what they send."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import pytest
import torch
from torch import Tensor

import dragfl
from dragfl.aggregates import Mean
from dragfl.errors import PartError, SpecError
from dragfl.types import Knowledge, Partial, Updates
from tests.conftest import Load
from tests.engine.custom_attacks import ConstantAttack, DelayedAttack, RecordingAttack, TamperingAttack
from tests.engine.plain_sgd import cohort_updates

SOME = {"per_round": 3}


def cohorts(experiment: dragfl.Experiment) -> list[list[int]]:
    return [record.clients["client"] for record in dragfl.simulate(experiment)]


def attackers_of(record: dragfl.RoundRecord) -> list[int]:
    return [m for m, bad in zip(record.clients["client"], record.clients["attacker"], strict=True) if bad]


def test_attackers_are_fixed_for_the_run(experiment: Load) -> None:
    attack = {"name": "sign_flip", "attackers": 2}
    simulation = dragfl.simulate(experiment(rounds=12, clients=SOME, attack=attack))
    fixed = simulation.federation.adversary.fixed
    assert len(fixed) == 2
    counts = set()
    for record in simulation:
        assert attackers_of(record) == sorted(fixed.intersection(record.clients["client"]))
        assert record.metrics["attackers"] == len(attackers_of(record))
        counts.add(len(attackers_of(record)))
    assert len(counts) > 1, "half of the clients are sampled, so the number must vary"


def test_attackers_can_be_redrawn_every_round(experiment: Load) -> None:
    attack = {"name": "sign_flip", "attackers": 2, "redraw": True}
    records = list(dragfl.simulate(experiment(rounds=8, clients=SOME, attack=attack)))
    assert all(record.metrics["attackers"] == len(attackers_of(record)) == 2 for record in records)
    assert len({tuple(attackers_of(record)) for record in records}) > 2


@pytest.mark.parametrize("redraw", [False, True])
def test_attackers_do_not_change_the_sampling(experiment: Load, redraw: bool) -> None:
    attack = {"name": "sign_flip", "attackers": 2, "redraw": redraw}
    assert cohorts(experiment(clients=SOME, attack=attack)) == cohorts(experiment(clients=SOME))


BLOCKS = [1, 4, 20]


def attacked(experiment: Load, attack: object, block: int, count: int = 3) -> dragfl.Experiment:
    return experiment(attack={"name": attack, "attackers": count}, engine={"block": block})


@pytest.mark.parametrize("block", BLOCKS)
def test_an_attack_of_knowledge_own_sees_one_update(experiment: Load, block: int) -> None:
    attack = RecordingAttack("own")
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
def test_a_colluding_attack_sees_the_updates_of_all_attackers(experiment: Load, block: int) -> None:
    attack = RecordingAttack("colluding")
    simulation = dragfl.simulate(attacked(experiment, attack, block))
    w = simulation.state.w
    simulation.step()
    (view,) = attack.views
    attackers = sorted(simulation.federation.adversary.fixed)
    assert view.own.client.tolist() == attackers
    torch.testing.assert_close(view.own.delta, cohort_updates(simulation, w, 0)[attackers], atol=2e-6, rtol=0)
    assert view.honest is None


@pytest.mark.parametrize("block", BLOCKS)
def test_an_omniscient_attack_sees_the_honest_updates(experiment: Load, block: int) -> None:
    attack = RecordingAttack("omniscient")
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
def test_attackers_that_send_their_clean_update_change_nothing(experiment: Load, knowledge: Knowledge) -> None:
    """Rules do not know which clients attack, so the bits are the same."""
    for algorithm in ("fedavg", "drag"):
        runs = []
        for count in (0, 3):
            attack = {"name": RecordingAttack(knowledge), "attackers": count}
            simulation = dragfl.simulate(experiment(algorithm={"name": algorithm}, attack=attack, engine={"block": 4}))
            records = [{k: v for k, v in record.metrics.items() if k != "attackers"} for record in simulation]
            runs.append((records, simulation.state.w))
        assert runs[0][0] == runs[1][0]
        assert torch.equal(runs[0][1], runs[1][1])


def test_an_attack_has_a_state(experiment: Load) -> None:
    """It sends the clean updates twice and the negated ones in the third round."""
    simulation = dragfl.simulate(attacked(experiment, DelayedAttack(), 4, count=6))
    for t, sign in enumerate((1, 1, -1)):
        w = simulation.state.w
        simulation.step()
        step = cohort_updates(simulation, w, t).mean(0)
        torch.testing.assert_close(simulation.state.w, w + sign * step, atol=2e-6, rtol=0)
    assert simulation.state.attack.rounds == 3


def test_an_attack_without_a_sampled_attacker_is_not_called(experiment: Load) -> None:
    attack = RecordingAttack("omniscient")
    list(dragfl.simulate(experiment(attack={"name": attack, "attackers": 1}, clients={"per_round": 1}, rounds=6)))
    assert len(attack.views) < 6, "in most rounds the one attacker is not the one sampled"


def test_an_update_of_another_shape_is_an_error(experiment: Load) -> None:
    class ShortUpdate(ConstantAttack):
        def craft(self, state, view, context):  # type: ignore[no-untyped-def]

            return replace(view.own, delta=view.own.delta[:, :5]), state

    with pytest.raises(PartError, match=r"ShortUpdate\.craft: delta .*shape \(1, 5\).*\(1, 21\)"):
        dragfl.simulate(attacked(experiment, ShortUpdate(1.0), 20)).step()


@pytest.mark.parametrize("knowledge", ["own", "colluding", "white_box"])
def test_writing_into_the_view_changes_nothing(experiment: Load, knowledge: Knowledge) -> None:
    changes = {"root": {"size": 50}, "algorithm": {"name": "br_drag"}}
    honest = final_model(experiment(**changes))
    attack = {"name": TamperingAttack("view", knowledge), "attackers": 2}
    assert torch.equal(final_model(experiment(**changes, attack=attack)), honest)


def test_the_cohort_gradient_of_attackers_is_of_their_poisoned_data(experiment: Load) -> None:
    mime = {"rounds": 1, "algorithm": {"name": "mime", "momentum": 0.0}}
    clean = final_model(experiment(**mime))
    poisoned = final_model(experiment(**mime, attack={"name": "label_flip", "attackers": 6}))
    assert not torch.allclose(clean, poisoned, atol=1e-4)


def final_model(spec: dragfl.Experiment) -> Tensor:
    simulation = dragfl.simulate(spec)
    list(simulation)
    return simulation.state.w


@dataclass(frozen=True)
class RecordedExtras(Mean):
    """The mean, which records the extras of every client."""

    seen: dict[int, Tensor] = field(default_factory=dict)

    def fold(self, plan: Any, block: Updates) -> Partial:
        self.seen.update(zip(block.client.tolist(), block.extra["dc"].clone(), strict=True))
        return super().fold(plan, block)


@pytest.mark.parametrize("forge_extras", [None, True, False])
@pytest.mark.parametrize("knowledge", ["own", "colluding", "omniscient"])
@pytest.mark.parametrize("block", [4, 20])
def test_extras_reach_the_server_as_forged(
    experiment: Load, knowledge: Knowledge, forge_extras: bool | None, block: int
) -> None:
    """The attack is applied to SCAFFOLD's extra, by default if attackers know more than their own update."""

    def extras(attack: dict[str, Any] | None) -> tuple[dict[int, Tensor], Any]:
        rule = RecordedExtras()
        algorithm = {"correction": {"name": "scaffold"}, "aggregate": rule}
        simulation = dragfl.simulate(experiment(algorithm=algorithm, attack=attack, engine={"block": block}))
        simulation.step()
        return rule.seen, simulation

    honest, _ = extras(None)
    attack = {"name": ConstantAttack(7.0, knowledge), "attackers": 2, "forge_extras": forge_extras}
    sent, simulation = extras({key: value for key, value in attack.items() if value is not None})
    forged = knowledge != "own" if forge_extras is None else forge_extras
    for m, extra in honest.items():
        attacks = m in simulation.federation.adversary.fixed
        expected = torch.full_like(extra, 7.0) if attacks and forged else extra
        assert torch.equal(sent[m], expected), m
    c = torch.stack(list(sent.values())).mean(0)
    torch.testing.assert_close(simulation.state.correction.c, c, atol=1e-6, rtol=0)


def test_a_white_box_attack_forges_no_extras(experiment: Load) -> None:
    """It optimises the update alone."""
    attack = {"name": RecordingAttack("white_box"), "attackers": 2}
    assert experiment(attack=attack).attackers.forge_extras is False
    with pytest.raises(SpecError, match=r"attack\.forge_extras"):
        experiment(attack={**attack, "forge_extras": True})
