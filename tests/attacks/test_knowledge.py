"""The view that each level of knowledge grants; rules do not know who the attackers are."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
import torch
from torch import Tensor

import dragfl
from dragfl.aggregates import AGGREGATES
from dragfl.attacks import ALIE, ATTACKS, IPM, FreeRider
from dragfl.engine.adversary import Rehearsal
from dragfl.engine.threads import one_thread
from dragfl.testing.compare import leaves, snapshot
from dragfl.types import FederationInfo, Knowledge, NoState, RoundContext, Updates, View
from tests.conftest import Load

ROOT = {"root": {"size": 20}}
LEVELS: dict[Knowledge, set[str]] = {
    "own": {"own", "info", "w"},
    "colluding": {"own", "info", "w"},
    "omniscient": {"own", "info", "w", "honest"},
    "white_box": {"own", "info", "w", "honest", "aggregate", "reference"},
}


@dataclass(frozen=True)
class RecordsViews:
    """Records its views and sends its clean updates times `factor`."""

    knowledge: Knowledge = "white_box"
    factor: float = 1.0
    views: list[View] = field(default_factory=list, compare=False)

    def init(self, info: FederationInfo) -> NoState:
        return NoState()

    def craft(self, state: Any, view: View, context: RoundContext) -> tuple[Updates, Any]:
        self.views.append(view)
        return replace(view.own, delta=self.factor * view.own.delta), state


def simulation(experiment: Load, attack: object, block: int = 4, **changes: Any) -> Any:
    table = {"name": attack, "attackers": 2}
    return dragfl.simulate(experiment(attack=table, engine={"block": block}, **(ROOT | changes)))


@pytest.mark.parametrize("knowledge", LEVELS)
def test_a_view_holds_what_its_level_grants(experiment: Load, knowledge: Knowledge) -> None:
    attack = RecordsViews(knowledge)
    run = simulation(experiment, attack, algorithm={"name": "br_drag"})
    w = run.state.w
    run.step()
    for view in attack.views:
        granted = {f.name for f in dataclasses.fields(view) if getattr(view, f.name) is not None}
        assert granted == LEVELS[knowledge]
        assert view.w is not None and torch.equal(view.w, w)
        assert len(view.own) == (1 if knowledge == "own" else 2)


@pytest.mark.parametrize("knowledge", ["own", "colluding", "omniscient"])
def test_nothing_else_can_be_reached_from_a_view(experiment: Load, knowledge: Knowledge) -> None:
    """Every tensor that can be reached, with its storage, holds no more than the view grants."""
    attack = RecordsViews(knowledge)
    run = simulation(experiment, attack)
    run.step()
    honest = 4 if knowledge == "omniscient" else 0
    for view in attack.views:
        for path, leaf in leaves(view, "view"):
            assert not callable(leaf), path
            if isinstance(leaf, Tensor):
                rows = 1 if path == "view.w" else honest if path.startswith("view.honest") else len(view.own)
                width = leaf.shape[1] if leaf.ndim > 1 else len(leaf) if path == "view.w" else 1
                assert leaf.untyped_storage().nbytes() <= rows * width * leaf.element_size(), path


def test_the_white_box_excludes_losses_and_client_states(experiment: Load) -> None:
    """A white box is the rule, its state and the updates: neither losses nor what clients keep between rounds."""
    attack = RecordsViews("white_box")
    simulation(experiment, attack, algorithm={"name": "scaffold"}).step()
    (view,) = attack.views
    assert isinstance(view.aggregate, Rehearsal)
    assert all(block.loss == block.states == block.steps == () for block in view.aggregate.clean)


def rules() -> list[dict[str, Any]]:
    models = {"aggregate": {"name": "flame", "space": "weights"}}
    return [*({"aggregate": {"name": name}} for name in AGGREGATES), models]


def runnable(experiment: Load, algorithm: dict[str, Any], attack: object) -> Any:
    """A simulation with eleven clients, enough for every rule, two of them attacking."""
    return simulation(experiment, attack, algorithm=algorithm, clients={"total": 11})


@pytest.mark.parametrize("algorithm", rules(), ids=lambda a: a["aggregate"]["name"])
def test_the_predicted_step_is_the_step_of_the_round(experiment: Load, algorithm: dict[str, Any]) -> None:
    """The step that the white box predicts for the forged updates is the step of the round, bit for bit."""
    attack = RecordsViews("white_box", factor=-2.0)
    run = runnable(experiment, algorithm, attack)
    for t in range(3):
        w, memory = run.state.w, snapshot({"state": run.state.aggregate})
        for_real = run.federation.algorithm.aggregate
        record = run.step()
        view = attack.views[t]
        assert view.aggregate is not None
        forged = -2.0 * view.own.delta
        with one_thread():  # as in a round
            predicted = view.aggregate(forged)
            assert torch.equal(predicted, view.aggregate(forged)), "asked twice"
        assert torch.equal(w + predicted, run.state.w)
        assert snapshot({"state": view.aggregate.defence.state}) == memory, "the prediction has changed the state"
        assert record.metrics["attackers"] == 2 and view.aggregate.defence.rule is for_real


def test_a_round_that_would_be_skipped_is_a_step_of_zero(experiment: Load) -> None:
    """Krum with f = 0 needs three updates. It has three, and one if two are not finite."""
    attack = RecordsViews("white_box")
    krum = {"aggregate": {"name": "krum", "f": 0}}
    simulation(experiment, attack, algorithm=krum, clients={"total": 3}).step()
    (view,) = attack.views
    assert view.aggregate is not None and view.aggregate(view.own.delta).any()
    assert not view.aggregate(torch.full_like(view.own.delta, torch.nan)).any()


@pytest.mark.parametrize("algorithm", ["drag", "br_drag", "fedavg"])
def test_predicting_steps_does_not_change_the_run(experiment: Load, algorithm: str) -> None:
    """An attack that predicts many steps and then sends its clean updates leaves the run unchanged."""

    @dataclass(frozen=True)
    class PredictsManySteps(RecordsViews):
        def craft(self, state: Any, view: View, context: RoundContext) -> tuple[Updates, Any]:
            assert view.aggregate is not None
            for i in range(20):
                view.aggregate((i - 7.0) * view.own.delta)
            view.aggregate(torch.full_like(view.own.delta, torch.nan))
            return view.own, state

    runs = []
    for attack in (PredictsManySteps(), None):
        changes = {} if attack is None else {"attack": {"name": attack, "attackers": 2}}
        run = dragfl.simulate(experiment(algorithm={"name": algorithm}, engine={"block": 4}, **ROOT, **changes))
        list(run)
        runs.append(snapshot({"w": run.state.w, "aggregate": run.state.aggregate}))
    assert runs[0] == runs[1]


def test_the_reference(experiment: Load) -> None:
    """BR-DRAG's is this round's root update; DRAG's the one it carries, which in the first round is not there yet."""
    attack = RecordsViews("white_box")
    run = simulation(experiment, attack, algorithm={"name": "br_drag"})
    w = run.state.w
    run.step()
    root = run.federation.worker.train_root(w, RoundContext(0, 0.2, 3))
    torch.testing.assert_close(attack.views[0].reference, root)
    attack = RecordsViews("white_box")
    run = simulation(experiment, attack, algorithm={"name": "drag"})
    run.step()
    carried = run.state.aggregate.r
    run.step()
    assert attack.views[0].reference is None
    assert torch.equal(attack.views[1].reference, carried)  # type: ignore[arg-type]


@pytest.mark.parametrize("algorithm", rules(), ids=lambda a: a["aggregate"]["name"])
def test_rules_do_not_know_who_attacks(experiment: Load, algorithm: dict[str, Any]) -> None:
    """The same is sent with two clients called attackers, and with none: nothing but the label changes."""
    runs = []
    for attackers in (2, 0):
        run = runnable(experiment, algorithm, RecordsViews("white_box"))
        spec = replace(run.experiment, attackers=replace(run.experiment.attackers, attackers=attackers))
        run = dragfl.simulate(spec)
        records = [{k: v for k, v in record.metrics.items() if k != "attackers"} for record in run]
        runs.append((records, run.state.w))
    assert runs[0][0] == runs[1][0]
    assert torch.equal(runs[0][1], runs[1][1])


@pytest.mark.parametrize("block", [1, 4, 20])
def test_replay_sends_the_last_change(experiment: Load, block: int) -> None:
    """Each free rider sends the last change of the model; zero in the first round."""
    run = simulation(experiment, FreeRider("replay"), block)
    models = [run.state.w]
    for t in range(3):
        record = run.step()
        models.append(run.state.w)
        change = models[t] - models[t - 1] if t else torch.zeros_like(models[0])
        sizes = [n for n, bad in zip(record.clients["norm"], record.clients["attacker"], strict=True) if bad]
        assert sizes == pytest.approx([float(change.norm())] * 2, rel=1e-5)
        assert torch.equal(run.state.attack.w, models[t])


def test_attackers_that_know_only_themselves_share_no_updates_through_their_state(experiment: Load) -> None:
    """An `own` attack that stores its update in the shared state finds zeros there."""

    @dataclass(frozen=True)
    class Note:
        seen: Tensor | None = None

    @dataclass(frozen=True)
    class StoresItsUpdate(RecordsViews):
        knowledge: Knowledge = "own"

        def init(self, info: FederationInfo) -> Any:
            return Note()

        def craft(self, state: Any, view: View, context: RoundContext) -> tuple[Updates, Any]:
            return view.own, Note(view.own.delta.clone())

    run = simulation(experiment, StoresItsUpdate())
    run.step()
    assert not run.state.attack.seen.any()
    with pytest.raises(dragfl.testing.BrokenContract, match=r"state\.seen depends on the attackers other than"):
        dragfl.testing.check_attack(StoresItsUpdate(), skip={"worker"})


def test_weights_stay_honest_and_extras_are_forged_and_dropped_with_the_update(experiment: Load) -> None:
    """Under SCAFFOLD the control variates are forged too; those of a dropped update are dropped with it."""
    attack = RecordsViews("omniscient", factor=-1.0)
    run = simulation(experiment, attack, algorithm={"name": "scaffold"})
    run.step()
    view, forging = attack.views  # the second call crafts the forged extra, as if it were the update
    assert forging.own.delta.shape == view.own.extra["dc"].shape
    assert view.own.extra.keys() == {"dc"} and view.own.weight.tolist() == [21.0, 21.0]
    lost = dragfl.simulate(
        experiment(
            algorithm={"name": "scaffold"}, attack={"name": "non_finite", "attackers": 2, "coordinates": "one"}, **ROOT
        )
    )
    fewer = dragfl.simulate(experiment(algorithm={"name": "scaffold"}, **ROOT))
    record = lost.step()
    fewer.step()
    assert record.metrics["dropped_nonfinite"] == 2
    assert torch.isfinite(lost.state.correction.c).all()
    assert not torch.equal(lost.state.correction.c, fewer.state.correction.c), "two control variates are missing"


@pytest.mark.parametrize("name", sorted(set(ATTACKS) - {"backdoor"}))  # which needs images
@pytest.mark.parametrize("algorithm", ["fedavg", "br_drag"])
def test_every_attack_runs(experiment: Load, name: str, algorithm: str) -> None:
    table = {"name": name, "attackers": 2}
    records = list(dragfl.simulate(experiment(rounds=2, algorithm={"name": algorithm}, attack=table, **ROOT)))
    assert [record.metrics["attackers"] for record in records] == [2, 2]


@pytest.mark.parametrize("attack", [ALIE(knowledge="white_box"), IPM(knowledge="white_box")])
def test_searched_factors_do_at_least_the_damage_of_fixed_ones(experiment: Load, attack: Any) -> None:
    """In the first round, against BR-DRAG: the step is at least as far from the honest mean as with a fixed factor."""
    away = []
    for given in (attack, ALIE(z=1.5) if isinstance(attack, ALIE) else IPM(0.5)):
        watch = RecordsViews("omniscient")
        simulation(experiment, watch, algorithm={"name": "br_drag"}).step()
        honest = watch.views[0].honest
        run = simulation(experiment, given, algorithm={"name": "br_drag"})
        w = run.state.w
        run.step()
        assert honest is not None
        away.append(float((run.state.w - w - honest.delta.mean(0)).norm()))
    assert away[0] >= 0.999 * away[1]


@pytest.mark.parametrize(
    ("table", "counts"),
    [
        ({"attackers": 2}, {0, 1, 2}),
        ({"fraction": 1 / 3}, {0, 1, 2}),
        ({"attackers": 2, "redraw": True}, {2}),
        ({"fraction": 2 / 3, "redraw": True}, {2}),
        ({"attackers": 2, "redraw": True, "counted_in": "all"}, {0, 1, 2}),
        ({"fraction": 1 / 3, "redraw": True, "counted_in": "all"}, {0, 1, 2}),
        ({"attackers": 1, "counted_in": "sampled"}, {0, 1, 2}),
        ({"attackers": 6}, {3}),
        ({"fraction": 0.0}, {0}),
    ],
)
def test_counted_among_all_or_among_the_sampled(experiment: Load, table: dict[str, Any], counts: set[int]) -> None:
    """Three of six clients are sampled in each of 40 rounds; `counted_in` fixes the number of redrawn attackers."""
    spec = experiment(rounds=40, clients={"per_round": 3}, attack={"name": "sign_flip", **table})
    records = list(dragfl.simulate(spec))
    seen = [record.metrics["attackers"] for record in records]
    assert set(seen) == counts  # type: ignore[comparison-overlap]
    assert all(sum(record.clients["attacker"]) == n for record, n in zip(records, seen, strict=True))
    mean, drawn = sum(map(float, seen)) / 40, spec.attackers.drawn(spec.clients)
    assert mean == pytest.approx(drawn if spec.attackers.drawn_from_cohort else drawn / 2, abs=0.35)
    if not spec.attackers.redraw:
        names = {m for r in records for m, bad in zip(r.clients["client"], r.clients["attacker"], strict=True) if bad}
        assert len(names) == spec.attackers.drawn(spec.clients)
    assert dragfl.load(spec.tables() | {"data": {"dataset": spec.dataset}}).attackers == spec.attackers
