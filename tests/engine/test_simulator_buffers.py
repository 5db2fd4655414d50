"""Buffers such as the statistics of BatchNorm: refused by default, averaged with `model.buffers = "average"`."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as nnf
from torch.nn.utils import parameters_to_vector, vector_to_parameters

import dragfl
from dragfl.errors import Interrupted, SpecError
from dragfl.rng import rng
from dragfl.runs.simulation import Simulation
from dragfl.vector import FlatModel
from tests.conftest import Load, kept_bytes
from tests.engine.custom_attacks import ConstantAttack

CLOSE = {"atol": 2e-6, "rtol": 0}
FLOATS = 2 * 4  # running mean and variance of four units


def network() -> nn.Module:
    with torch.random.fork_rng():
        torch.manual_seed(1)
        return nn.Sequential(nn.Linear(6, 4), nn.BatchNorm1d(4), nn.ReLU(), nn.Linear(4, 3))


def averaged(experiment: Load, **changes: Any) -> dragfl.Experiment:
    return experiment(model={"name": network(), "buffers": "average"}, **changes)


def flat_buffers(module: nn.Module) -> Tensor:
    """Running mean, then running variance."""
    norm: Any = module.get_submodule("1")
    return torch.cat([norm.running_mean, norm.running_var])


def load_into(module: nn.Module, w: Tensor, buffers: Tensor) -> nn.Module:
    module = copy.deepcopy(module)
    vector_to_parameters(w.clone(), module.parameters())
    norm: Any = module.get_submodule("1")
    norm.running_mean, norm.running_var = buffers[:4].clone(), buffers[4:].clone()
    norm.num_batches_tracked.zero_()
    return module.train()


def batches(simulation: Simulation, t: int, client: int) -> list[Any]:
    mine = simulation.federation.worker.split.samples_of(client)
    return [mine[rows] for rows in rng(3, "batch", t, client).integers(0, len(mine), (2, 5))]


def train_plain(simulation: Simulation, w: Tensor, buffers: Tensor, t: int, client: int) -> tuple[Tensor, Tensor]:
    """(update, buffers after it) of one client under plain SGD."""
    module, dataset = load_into(network(), w, buffers), simulation.experiment.dataset
    optimizer = torch.optim.SGD(module.parameters(), lr=0.2)
    for rows in batches(simulation, t, client):
        optimizer.zero_grad()
        nnf.cross_entropy(module(dataset.x[rows]), dataset.y[rows]).backward()
        optimizer.step()
    return parameters_to_vector(module.parameters()).detach() - w, flat_buffers(module)


class TestRefused:
    def test_the_error_names_the_layer_and_the_option(self, experiment: Load) -> None:
        with pytest.raises(SpecError, match=r"layer '1' \(BatchNorm1d\) has buffers.*model\.buffers = \"average\""):
            dragfl.simulate(experiment(model={"name": network()}))

    def test_a_nested_layer(self, experiment: Load) -> None:
        module = nn.Sequential(nn.Linear(6, 4), nn.Sequential(nn.ReLU(), nn.BatchNorm1d(4)), nn.Linear(4, 3))
        with pytest.raises(SpecError, match=r"layer '1\.1' \(BatchNorm1d\)"):
            dragfl.simulate(experiment(model={"name": module}))

    def test_the_run_directory_is_not_created(self, experiment: Load, tmp_path: Path) -> None:
        with pytest.raises(SpecError, match="has buffers"):
            dragfl.run(experiment(model={"name": network(), "buffers": "refuse"}), tmp_path / "r")
        assert not (tmp_path / "r").exists()

    def test_an_unknown_policy(self, experiment: Load) -> None:
        with pytest.raises(SpecError, match=r"model\.buffers: .*'keep'.*average, refuse"):
            experiment(model={"buffers": "keep"})

    def test_a_model_without_buffers_accepts_either_option(self, experiment: Load) -> None:
        plain = [r.metrics for r in dragfl.simulate(experiment())]
        assert [r.metrics for r in dragfl.simulate(experiment(model={"buffers": "average"}))] == plain


class TestAveraged:
    def test_the_buffers_of_all_clients_are_averaged(self, experiment: Load) -> None:
        """Every client starts from the server's buffers; theirs are averaged like their updates."""
        simulation = dragfl.simulate(averaged(experiment))
        assert torch.equal(simulation.state.buffers, torch.tensor([0.0] * 4 + [1.0] * 4))
        for t in range(3):
            w, before = simulation.state.w, simulation.state.buffers
            simulation.step()
            updates, buffers = zip(*(train_plain(simulation, w, before, t, m) for m in range(6)), strict=True)
            torch.testing.assert_close(simulation.state.w, w + torch.stack(updates).mean(0), **CLOSE)
            torch.testing.assert_close(simulation.state.buffers, torch.stack(buffers).mean(0), **CLOSE)
            assert (simulation.state.buffers - before).norm() > 0.05, "they must change"

    def test_counters_start_at_zero_for_every_client(self, experiment: Load) -> None:
        """Without momentum, BatchNorm weights by its counter, so an earlier batch would change the mean."""
        module: Any = network()
        module[1].momentum = None
        spec = {"name": module, "buffers": "average"}
        simulation = dragfl.simulate(experiment(model=spec, clients={"total": 2}))
        w = simulation.state.w
        simulation.step()
        dataset = simulation.experiment.dataset
        means = []
        for m in range(2):
            first, second = batches(simulation, 0, m)
            one = load_into(module, w, torch.tensor([0.0] * 4 + [1.0] * 4))
            optimizer = torch.optim.SGD(one.parameters(), lr=0.2)
            hidden = one.get_submodule("0")(dataset.x[first]).mean(0)
            nnf.cross_entropy(one(dataset.x[first]), dataset.y[first]).backward()
            optimizer.step()
            means.append((hidden + one.get_submodule("0")(dataset.x[second]).mean(0)).detach() / 2)
        torch.testing.assert_close(simulation.state.buffers[:4], torch.stack(means).mean(0), **CLOSE)

    def test_block_sizes_agree(self, experiment: Load) -> None:
        def after(block: int) -> tuple[Tensor, Tensor]:
            simulation = dragfl.simulate(averaged(experiment, engine={"block": block}))
            list(simulation)
            return simulation.state.w, simulation.state.buffers

        one, again = after(1), after(1)
        assert torch.equal(one[0], again[0])
        assert torch.equal(one[1], again[1])
        for block in (2, 4, 6):
            for mine, other in zip(after(block), one, strict=True):
                torch.testing.assert_close(mine, other, atol=1e-5, rtol=0)

    def test_bytes_include_the_buffers(self, experiment: Load) -> None:
        record = dragfl.simulate(averaged(experiment)).step()
        dim = 6 * 4 + 4 + 4 + 4 + 4 * 3 + 3
        assert record.metrics["bytes_up"] == record.metrics["bytes_down"] == 6 * 4 * (dim + FLOATS)

    def test_evaluation_uses_the_buffers(self, experiment: Load) -> None:
        simulation = dragfl.simulate(averaged(experiment, rounds=5))
        *_, last = simulation
        dataset = simulation.experiment.dataset
        module = load_into(network(), simulation.state.w, simulation.state.buffers).eval()
        with torch.no_grad():
            scores = module(dataset.test_x)
            fresh = load_into(network(), simulation.state.w, torch.tensor([0.0] * 4 + [1.0] * 4)).eval()(dataset.test_x)
        assert last.metrics["accuracy"] == (scores.argmax(1) == dataset.test_y).double().mean().item()
        assert last.metrics["loss"] == pytest.approx(nnf.cross_entropy(scores, dataset.test_y).item(), rel=1e-5)
        assert last.metrics["loss"] != pytest.approx(nnf.cross_entropy(fresh, dataset.test_y).item(), rel=1e-2)

    def test_evaluation_changes_nothing(self, experiment: Load) -> None:
        often = dragfl.simulate(averaged(experiment, evaluation={"every": 1}))
        seldom = dragfl.simulate(averaged(experiment, evaluation={"every": 3}))
        list(often), list(seldom)
        assert torch.equal(often.state.buffers, seldom.state.buffers)
        assert torch.equal(often.state.w, seldom.state.w)

    def test_the_buffers_of_a_dropped_update_are_dropped(self, experiment: Load) -> None:
        spec = averaged(experiment, rounds=1, attack={"name": ConstantAttack(float("nan")), "attackers": 2})
        simulation = dragfl.simulate(spec)
        w, before = simulation.state.w, simulation.state.buffers
        simulation.step()
        honest = sorted(set(range(6)) - simulation.federation.adversary.fixed)
        buffers = [train_plain(simulation, w, before, 0, m)[1] for m in honest]
        torch.testing.assert_close(simulation.state.buffers, torch.stack(buffers).mean(0), **CLOSE)

    def test_root_training_starts_from_the_buffers_and_does_not_change_them(self, experiment: Load) -> None:
        """BR-DRAG: the statistics of the root data are not averaged with those of the clients."""
        spec = averaged(experiment, rounds=1, algorithm={"name": "br_drag"}, root={"size": 20, "disjoint": False})
        simulation = dragfl.simulate(spec)
        w, before = simulation.state.w, simulation.state.buffers
        simulation.step()
        buffers = [train_plain(simulation, w, before, 0, m)[1] for m in range(6)]
        torch.testing.assert_close(simulation.state.buffers, torch.stack(buffers).mean(0), **CLOSE)


class TestFinalModel:
    def test_it_loads_into_a_fresh_module(self, experiment: Load, tmp_path: Path) -> None:
        run = dragfl.run(averaged(experiment), tmp_path / "r")
        module = network()
        module.load_state_dict(run.model(), strict=True)
        assert run.model()["1.num_batches_tracked"].item() == 0, "counters are not aggregated"
        assert run.model()["1.running_mean"].abs().sum() > 0
        dataset = experiment().dataset
        accuracy = (module.eval()(dataset.test_x).argmax(1) == dataset.test_y).double().mean().item()
        assert accuracy == run.metrics[-1]["accuracy"]

    def test_frozen_and_tied_parameters_and_buffers_that_are_not_persistent(self) -> None:
        """The state dict has a frozen parameter and a weight under two names, and no buffer that is not persistent."""

        class Special(nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.one, self.two, self.norm = nn.Linear(3, 3), nn.Linear(3, 3), nn.BatchNorm1d(3)
                self.two.weight = self.one.weight
                self.fixed = nn.Parameter(torch.full((2,), 7.0), requires_grad=False)
                self.register_buffer("temporary", torch.ones(5), persistent=False)

        model = FlatModel(Special(), buffers="average")
        assert len(model.b) == 3 + 3 + 5
        vector, buffers = torch.arange(float(model.dim)), 100 + torch.arange(11.0)
        held = model.w.clone()
        state = model.named(vector, buffers)
        assert torch.equal(model.w, held), "named() changes nothing"
        fresh = Special()
        fresh.load_state_dict(state, strict=True)
        assert torch.equal(fresh.one.weight, fresh.two.weight)
        assert fresh.fixed.tolist() == [7.0, 7.0]
        again = FlatModel(fresh, buffers="average")
        assert torch.equal(again.w, vector)
        sizes = [dict(model.module.named_buffers())[name].numel() for name in model.buffer_names]
        given = dict(zip(model.buffer_names, buffers.split(sizes), strict=True))
        assert torch.equal(fresh.norm.running_mean, given["norm.running_mean"])
        assert torch.equal(fresh.norm.running_var, given["norm.running_var"])
        assert torch.equal(fresh.temporary, torch.ones(5))


@pytest.mark.parametrize("algorithm", ["drag", "scaffold", "mime"])
def test_a_resumed_run_has_the_same_bits(experiment: Load, tmp_path: Path, algorithm: str) -> None:
    changes = {"rounds": 5, "algorithm": {"name": algorithm}, "clients": {"per_round": 3}}
    whole = dragfl.run(averaged(experiment, **changes), tmp_path / "whole")
    stop = iter([False, True, True])
    with pytest.raises(Interrupted):
        dragfl.run(averaged(experiment, **changes), tmp_path / "cut", should_stop=lambda: next(stop))
    again = dragfl.resume(tmp_path / "cut", averaged(experiment, **changes))
    assert kept_bytes(again.path) == kept_bytes(whole.path)


def gradient(module: nn.Module, dataset: dragfl.Dataset, rows: Any) -> Tensor:
    loss = nnf.cross_entropy(module(dataset.x[rows]), dataset.y[rows])
    return torch.cat([g.reshape(-1) for g in torch.autograd.grad(loss, list(module.parameters()))])


class TestCorrections:
    def test_scaffold_option_i(self, experiment: Load) -> None:
        """c_m is a full gradient at the model sent out; computing it does not change the buffers.

        In the first round all c are zero, so clients train as in FedAvg.
        """
        simulation = dragfl.simulate(averaged(experiment, algorithm={"name": "scaffold", "option": "I"}))
        w, before = simulation.state.w, simulation.state.buffers
        simulation.step()
        dataset, split = simulation.experiment.dataset, simulation.federation.worker.split
        full = [gradient(load_into(network(), w, before), dataset, split.samples_of(m)) for m in range(6)]
        torch.testing.assert_close(simulation.state.correction.c, torch.stack(full).mean(0), **CLOSE)
        buffers = [train_plain(simulation, w, before, 0, m)[1] for m in range(6)]
        torch.testing.assert_close(simulation.state.buffers, torch.stack(buffers).mean(0), **CLOSE)

    @pytest.mark.parametrize("algorithm", [{"name": "scaffold", "option": "I"}, {"name": "mime"}, {"name": "feddyn"}])
    def test_the_accuracy_rises(self, experiment: Load, algorithm: dict[str, Any]) -> None:
        iid = {"data": {"partition": {"kind": "iid"}}, "clients": {"batch_size": 12}}
        *_, last = dragfl.simulate(averaged(experiment, rounds=15, algorithm=algorithm, **iid))
        assert last.metrics["accuracy"] > 0.75

    def test_mime(self, experiment: Load) -> None:
        """A step takes g(w) - g(w0) + c times 1 - beta; only the pass at w updates the statistics of BatchNorm."""
        simulation = dragfl.simulate(averaged(experiment, algorithm={"name": "mime", "momentum": 0.5}))
        w0, before = simulation.state.w, simulation.state.buffers
        simulation.step()
        dataset, split = simulation.experiment.dataset, simulation.federation.worker.split
        c = torch.stack(
            [gradient(load_into(network(), w0, before), dataset, split.samples_of(m)) for m in range(6)]
        ).mean(0)
        ends, buffers = [], []
        for m in range(6):
            module, w = load_into(network(), w0, before), w0.clone()
            for rows in batches(simulation, 0, m):
                vector_to_parameters(w.clone(), module.parameters())
                anchor = gradient(load_into(network(), w0, before), dataset, rows)
                w = w - 0.2 * 0.5 * (gradient(module, dataset, rows) - anchor + c)
            ends.append(w)
            buffers.append(flat_buffers(module))
        torch.testing.assert_close(simulation.state.w, torch.stack(ends).mean(0), **CLOSE)
        torch.testing.assert_close(simulation.state.buffers, torch.stack(buffers).mean(0), **CLOSE)
