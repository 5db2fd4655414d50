"""Everything that is fixed for a run, put in place from an experiment: data, split, root data, model, worker."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from dragfl import data
from dragfl.arithmetic import norm
from dragfl.config.build_parts import Model
from dragfl.config.registry import import_object
from dragfl.config.spec import Experiment, load
from dragfl.data import partitions
from dragfl.data import root as root_data
from dragfl.data.dataset import Dataset
from dragfl.data.download import Progress
from dragfl.data.partitions.split import ClientSplit
from dragfl.engine.backends import Backend
from dragfl.engine.backends.select import choose as choose_executor
from dragfl.engine.client_store import ClientStore, open_store
from dragfl.engine.round import FederationState
from dragfl.engine.worker import Worker
from dragfl.errors import DataError, SpecError
from dragfl.rng import rng
from dragfl.training.loop import Loop
from dragfl.training.select import select_trainer
from dragfl.types import Algorithm, Attack, FederationInfo, FitsData, RoundContext
from dragfl.vector import FlatModel, addressed

BLOCK_BYTES = 32 << 20  # updates folded together take about this much memory


@dataclass(frozen=True)
class Federation:
    """The fixed half of a run; `state` of the round is the moving half."""

    experiment: Experiment
    info: FederationInfo
    split: ClientSplit
    model: FlatModel
    worker: Worker
    executor: Backend
    store: ClientStore
    initial: Tensor
    initial_buffers: Tensor | None
    block: int
    fixed_attackers: frozenset[int]

    @property
    def algorithm(self) -> Algorithm:
        return self.experiment.algorithm

    @cached_property
    def initial_norm(self) -> float:
        return norm(self.initial)

    @property
    def nominal_steps(self) -> int:
        span = self.experiment.clients.local_steps
        return span[1] if isinstance(span, tuple) else span or 1

    def attackers(self, context: RoundContext, cohort: tuple[int, ...]) -> frozenset[int]:
        """Who attacks in this round, among the sampled."""
        spec = self.experiment.attackers
        if not spec.redraw:
            return self.fixed_attackers.intersection(cohort)
        pool = cohort if spec.of_sampled else range(self.info.clients)
        drawn = context.rng("attackers").choice(len(pool), spec.drawn(self.experiment.clients), replace=False)
        return frozenset(pool[i] for i in drawn).intersection(cohort)

    def blocks(self, cohort: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
        return (cohort[a : a + self.block] for a in range(0, len(cohort), self.block))

    def start(self) -> FederationState:
        """The state before the first round."""
        parts, attack = self.algorithm, self.experiment.attack
        return FederationState(
            0,
            self.initial.clone(),
            parts.correction.init(self.info),
            parts.aggregate.init(self.info),
            parts.server.init(self.info),
            attack.init(self.info) if attack else None,
            buffers=self.initial_buffers,
        )


def prepare(experiment: Experiment, folder: Path | None = None) -> Federation:
    """Put everything in place, and choose who trains; large client states go to `folder`."""
    experiment, worker = equip(experiment)
    clients, model, info = experiment.clients, worker.loop.model, worker.info
    attackers = 0 if experiment.attackers.redraw else experiment.attackers.drawn(clients)
    chosen = rng(experiment.seed, "attackers").choice(clients.total, attackers, replace=False)
    kept = experiment.algorithm.correction.fields
    return Federation(
        experiment=experiment,
        info=info,
        split=worker.split,
        model=model,
        worker=worker,
        executor=choose_executor(experiment, worker),
        store=open_store(kept, model.dim, clients.total, experiment.state, folder, info.device),
        initial=model.w.clone(),
        initial_buffers=model.b.clone() if len(model.b) else None,
        block=experiment.engine.block or default_block(model.dim),
        fixed_attackers=frozenset(chosen.tolist()),
    )


def worker_from_tables(tables: Mapping[str, Any], dataset: Dataset | None = None) -> Worker:
    """The entry point of worker processes and Ray actors: a worker from the resolved tables of an experiment."""
    return equip(load(tables), dataset)[1]


def equip(experiment: Experiment, dataset: Dataset | None = None) -> tuple[Experiment, Worker]:
    """Load the data, deal it out, build the model: (the experiment with nothing left open, a worker that can train).

    `dataset`: the experiment's data where they are at hand already.
    """
    device = _device(experiment.engine.device)
    dataset = _on_device(load_dataset(experiment.dataset) if dataset is None else dataset, device)
    split, root = deal(experiment, dataset)
    module = addressed(lambda: make_module(experiment.model, dataset), experiment.seed)
    trainer = select_trainer(experiment.engine.trainer, module)
    model = FlatModel(module, device, experiment.model.buffers, channels_last=trainer == "channels_last")
    _check_fit(model, dataset)
    block = experiment.engine.block or default_block(model.dim)
    experiment = replace(experiment, engine=replace(experiment.engine, block=block, trainer=trainer))
    clients = experiment.clients
    info = FederationInfo(model.dim, clients.total, clients.per_round or clients.total, model.segments, device)
    return experiment, Worker(
        Loop(model, dataset, double_softmax=experiment.model.double_softmax),
        dataset,
        split,
        root,
        clients,
        experiment.root,
        experiment.algorithm.correction,
        experiment.algorithm.aggregate,
        _suited(experiment.attack, dataset),
        info,
        experiment.evaluation.batch_size,
        trainer,
    )


def load_dataset(given: str | Dataset, progress: Progress | None = None) -> Dataset:
    """A dataset by name, of a user's files, of `module:attr` (a Dataset or a function that makes one), or itself."""
    if not isinstance(given, str) or given.partition(":")[0] in data.FILE_KINDS or ":" not in given:
        return data.load(given, progress)
    found = import_object("data.dataset", given)
    dataset = found() if callable(found) else found
    if not isinstance(dataset, Dataset):
        raise SpecError(f"data.dataset: {given} is a {type(dataset).__name__}; it must be a Dataset or make one")
    return dataset


def deal(experiment: Experiment, dataset: Dataset) -> tuple[ClientSplit, tuple[Tensor, Tensor] | None]:
    """The split into clients, and the root data; disjoint root samples are taken out before the clients' deal."""
    root, left = choose_root(experiment, dataset) if experiment.root is not None else (None, None)
    clients, draws = experiment.clients.total, rng(experiment.seed, "partition")
    split = partitions.partition_dataset(dataset, experiment.partition, clients, draws, left)
    if split.clients != clients:
        raise DataError(f"the partition made {split.clients} clients and clients.total is {clients}")
    return split, root


def choose_root(experiment: Experiment, dataset: Dataset) -> tuple[tuple[Tensor, Tensor], NDArray[np.int64] | None]:
    """The trusted samples, spoilt and cleaned as the spec says, and the training rows left to the clients."""
    spec, seed = experiment.root, experiment.seed
    assert spec is not None
    x, y = (dataset.x, dataset.y) if spec.source == "train" else (dataset.test_x, dataset.test_y)
    if spec.size >= len(y):
        raise DataError(f"root.size: {spec.size} of the {len(y)} {spec.source} samples; choose a smaller root")
    chosen = root_data.sample_root(y.cpu().numpy(), spec.size, rng(seed, "root"), spec.bias, spec.biased_class)
    index = torch.from_numpy(chosen).to(y.device)
    root_x, root_y = x[index], y[index]
    if spec.noise:
        root_y = root_data.add_label_noise(root_y, dataset.classes, spec.noise, rng(seed, "root noise"))
    if spec.filter == "confident":
        keep = root_data.confident_samples(dataset.inputs(root_x), root_y, dataset.classes, rng(seed, "root clean"))
        root_x, root_y = root_x[keep], root_y[keep]
        if not len(root_y):
            raise DataError("root.filter: nothing of the root set is left; use more or better root data")
    taken = spec.disjoint and spec.source == "train"
    return (root_x, root_y), np.delete(np.arange(len(dataset.y)), chosen) if taken else None


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


def _suited(attack: Attack[Any] | None, dataset: Dataset) -> Attack[Any] | None:
    """An attack that depends on the data, as poisons do, is told of them, or says that it cannot be carried out."""
    return attack.for_data(dataset.classes, dataset.x) if isinstance(attack, FitsData) else attack


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
