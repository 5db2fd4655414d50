"""Everything that is fixed for a run, put in place from an experiment: data, split, root data, model, worker."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from dragfl import data
from dragfl.arithmetic import norm
from dragfl.data.dataset import Dataset
from dragfl.data.partitions.split import Shares
from dragfl.engine.client_store import MemoryStore
from dragfl.engine.executors import Executor, InProcess
from dragfl.engine.round import FederationState
from dragfl.engine.worker import Worker
from dragfl.errors import DataError, SpecError
from dragfl.experiment.spec import Experiment, Model
from dragfl.rng import rng
from dragfl.training.loop import Loop
from dragfl.types import Algorithm, Now, Setting
from dragfl.vector import FlatModel, build

BLOCK_BYTES = 16 << 20  # updates folded together take about this much memory


@dataclass(frozen=True)
class Federation:
    """The fixed half of a run; `state` of the round is the moving half."""

    experiment: Experiment
    setting: Setting
    split: Shares
    model: FlatModel
    worker: Worker
    executor: Executor
    store: MemoryStore
    initial: Tensor
    block: int
    fixed_attackers: frozenset[int]

    @property
    def algorithm(self) -> Algorithm:
        return self.experiment.algorithm

    @property
    def initial_norm(self) -> float:
        return norm(self.initial)

    @property
    def nominal_steps(self) -> int:
        span = self.experiment.clients.local_steps
        return span[1] if isinstance(span, tuple) else span or 1

    def attackers(self, now: Now, cohort: tuple[int, ...]) -> frozenset[int]:
        """Who attacks in this round, among the sampled."""
        spec = self.experiment.attackers
        if spec.redraw:
            drawn = now.rng("attackers").choice(len(cohort), min(spec.attackers, len(cohort)), replace=False)
            return frozenset(cohort[i] for i in drawn)
        return self.fixed_attackers.intersection(cohort)

    def blocks(self, cohort: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
        return (cohort[a : a + self.block] for a in range(0, len(cohort), self.block))

    def start(self) -> FederationState:
        """The state before the first round."""
        parts, attack = self.algorithm, self.experiment.attack
        return FederationState(
            0,
            self.initial.clone(),
            parts.correction.init(self.setting),
            parts.aggregate.init(self.setting),
            parts.server.init(self.setting),
            attack.init(self.setting) if attack else None,
        )


def prepare(experiment: Experiment) -> Federation:
    """Load the data, deal it out, build the model and everything that trains it."""
    device = _device(experiment.engine.device)
    given = experiment.dataset
    dataset = _on_device(data.load(given) if isinstance(given, str) else given, device)
    split, root = deal(experiment, dataset)
    model = build(lambda: make_module(experiment.model, dataset), experiment.seed, device)
    _check_fit(model, dataset)
    block = experiment.engine.block or default_block(model.dim)
    experiment = replace(experiment, engine=replace(experiment.engine, block=block))
    clients = experiment.clients
    setting = Setting(model.dim, clients.total, clients.per_round or clients.total, model.segments, device)
    worker = Worker(
        Loop(model, dataset, experiment.model.double_softmax),
        dataset,
        split,
        root,
        clients,
        experiment.root,
        experiment.algorithm.correction,
        experiment.attack,
        setting,
        experiment.evaluation.block,
    )
    chosen = rng(experiment.seed, "attackers").choice(clients.total, experiment.attackers.attackers, replace=False)
    return Federation(
        experiment=experiment,
        setting=setting,
        split=split,
        model=model,
        worker=worker,
        executor=InProcess(worker),
        store=MemoryStore(experiment.algorithm.correction.fields, model.dim, device),
        initial=model.w.clone(),
        block=block,
        fixed_attackers=frozenset() if experiment.attackers.redraw else frozenset(chosen.tolist()),
    )


def deal(experiment: Experiment, dataset: Dataset) -> tuple[Shares, tuple[Tensor, Tensor] | None]:
    """The split into clients, and the root data; disjoint root samples are taken out before the clients' deal."""
    labels = dataset.y.cpu().numpy()
    keep = np.arange(len(labels))
    root: tuple[Tensor, Tensor] | None = None
    if experiment.root is not None:
        spec = experiment.root
        x, y = (dataset.x, dataset.y) if spec.source == "train" else (dataset.test_x, dataset.test_y)
        if spec.size >= len(y):
            raise DataError(f"root.size: {spec.size} of the {len(y)} {spec.source} samples; choose a smaller root")
        chosen = rng(experiment.seed, "root").choice(len(y), spec.size, replace=False)
        index = torch.from_numpy(np.sort(chosen)).to(y.device)
        root = x[index], y[index]
        if spec.disjoint and spec.source == "train":
            keep = np.delete(keep, chosen)
    split = _partition(experiment, dataset, labels, keep)
    if split.clients != experiment.clients.total:
        raise DataError(f"the partition made {split.clients} clients and clients.total is {experiment.clients.total}")
    return (split if len(keep) == len(labels) else Remaining(split, keep)), root


def _partition(experiment: Experiment, dataset: Dataset, labels: NDArray[np.int64], keep: NDArray[np.int64]) -> Shares:
    partition, clients, draws = experiment.partition, experiment.clients.total, rng(experiment.seed, "partition")
    if not getattr(partition, "wants_groups", False):
        return partition(labels[keep], clients, draws)
    groups = getattr(dataset, "groups", None)
    if groups is None:
        raise DataError(f"data.partition: it deals by group, and dataset {dataset.name} has no groups")
    by_group: Any = partition
    split: Shares = by_group(labels[keep], clients, draws, np.asarray(groups)[keep])
    return split


@dataclass(frozen=True)
class Remaining:
    """A split of the samples that are left when the root data are taken out, in numbers of the whole dataset."""

    split: Shares
    keep: NDArray[np.int64]

    @property
    def clients(self) -> int:
        return self.split.clients

    @property
    def sizes(self) -> NDArray[np.int64]:
        return self.split.sizes

    def of(self, client: int) -> NDArray[np.int64]:
        return self.keep[self.split.of(client)]


def make_module(spec: Model, dataset: Dataset) -> nn.Module:
    """The module a spec asks for; an nn.Module object is copied, so that the user's own stays as it is."""
    if isinstance(spec.make, nn.Module):
        return copy.deepcopy(spec.make)
    try:
        module: Any = spec.make(dataset.shape, dataset.classes, **spec.settings)
    except TypeError as error:
        raise SpecError(f"model: calling it with (shape, classes) failed: {error}") from None
    if not isinstance(module, nn.Module):
        raise SpecError(f"model: made a {type(module).__name__}; it must make an nn.Module")
    return module


def _check_fit(model: FlatModel, dataset: Dataset) -> None:
    """One forward pass before the first round, so that a wrong shape is told at once."""
    model.module.eval()
    try:
        with torch.no_grad():
            shape = tuple(model.module(dataset.inputs(dataset.x[:2])).shape)
    except (RuntimeError, ValueError, TypeError) as error:
        raise SpecError(f"model: it does not take inputs of shape {dataset.shape}: {error}") from None
    if len(shape) != 2 or shape[1] < dataset.classes:
        raise SpecError(f"model: it answers with shape {shape} for 2 samples of {dataset.classes} classes")


def default_block(dim: int) -> int:
    """Clients folded together: a power of two up to 32, about BLOCK_BYTES of updates."""
    fit = max(1, BLOCK_BYTES // (4 * dim))
    return min(32, 1 << (fit.bit_length() - 1))


def _device(name: str) -> str:
    try:
        torch.empty(0, device=name)
    except (RuntimeError, AssertionError) as error:
        raise SpecError(f"engine.device: '{name}' cannot be used here ({error}); try 'cpu'") from None
    return name


def _on_device(dataset: Dataset, device: str) -> Dataset:
    if device == "cpu":
        return dataset
    moved = {name: getattr(dataset, name).to(device) for name in ("x", "y", "test_x", "test_y")}
    return replace(dataset, **moved)
