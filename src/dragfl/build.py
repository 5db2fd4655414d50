"""From an experiment to a federation: load the data, partition them, build the model, select trainer and backend.

This is the only module that knows both the spec (`config`) and the engine.
"""

from __future__ import annotations

import copy
import logging
import warnings
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from dragfl import data
from dragfl.config.augmentation import make_augment
from dragfl.config.build_parts import Model
from dragfl.config.check_parts import needs_of
from dragfl.config.portable import has_own_parts, why_not_portable
from dragfl.config.spec import Experiment, load
from dragfl.data import partitions
from dragfl.data import root as root_data
from dragfl.data.dataset import Dataset
from dragfl.data.download import Progress
from dragfl.data.partitions.split import ClientSplit, Split
from dragfl.engine.adversary import Adversary
from dragfl.engine.backends import Backend
from dragfl.engine.backends.local import LocalBackend
from dragfl.engine.backends.pool import PoolBackend
from dragfl.engine.backends.ray import RayBackend, require_ray
from dragfl.engine.calls import model_errors
from dragfl.engine.client import LocalTrainer, LocalWork
from dragfl.engine.client_store import ClientStore, open_store
from dragfl.engine.iterate import Iterate
from dragfl.engine.simulator import RootData, Worker
from dragfl.engine.state import Federation
from dragfl.engine.threads import available_cores, one_thread
from dragfl.errors import DataError, DragflWarning, SpecError
from dragfl.models.call import call_model
from dragfl.own_code import import_object, name_of, named_errors, refuses_own_code
from dragfl.rng import rng
from dragfl.training.augment import fit
from dragfl.training.loop import Loop
from dragfl.training.select import make_trainer, select_trainer
from dragfl.training.sgd import LocalSGD
from dragfl.types import FederationInfo, FitsData
from dragfl.vector import FlatModel, init_module

ENTRY_POINT = "dragfl.build:worker_from_tables"  # how a worker process builds its worker
BLOCK_BYTES = 16 << 20  # of updates folded together: they are read again while they are in the cache
RECEIVED_MB = 256  # updates of clients outside the simulator that are kept in memory: a disk is faster than a network

# A worker process takes about two seconds to start. With engine.workers = "auto" there is one for each core if the run
# and each round are large enough, counted in (parameters x samples) that clients pass through the model: about ten
# seconds and twenty milliseconds on one core of 2025.
RUN_WORK = 7e10
ROUND_WORK = 1e8
PIECE_WORK = 2e8  # clients are handed to workers in pieces of some milliseconds, to save messages

DIRECTION_BYTES = 2 << 30  # one update for each class of the root data, in a rule that uses them

log = logging.getLogger("dragfl")

Connect = Callable[[Experiment, Worker], tuple[Backend, ClientStore]]  # to clients outside the simulator


def build_federation(
    experiment: Experiment, folder: Path | None = None, connect: Connect | None = None
) -> tuple[Experiment, Federation]:
    """(the experiment with every default resolved, its federation). Large client states go to `folder`.

    `connect` supplies the backend and the store of clients that are not simulated.
    """
    if connect is None and experiment.flower.data == "own":
        raise SpecError(
            "flower.data: 'own', but no node brings data in a simulation; use 'partition', or deploy the federation"
        )
    experiment, worker = build_worker(experiment)
    _check_directions(experiment, worker)
    _warn_of_batch_size(experiment, worker.split)
    model, info, state = worker.local.loop.model, worker.info, experiment.state
    evaluation = experiment.evaluation
    if connect is None:
        fields = experiment.algorithm.correction.fields
        backend = select_backend(experiment, worker)
        store = open_store(fields, info, state.memory_mb, state.on_missing, folder)
    else:
        backend, store = connect(experiment, worker)
    federation = Federation(
        info=info,
        algorithm=experiment.algorithm,
        adversary=build_adversary(experiment),
        seed=experiment.seed,
        lr=experiment.clients.lr,
        block=experiment.engine.block or default_block(model.dim, info.per_round),
        kept_bytes=(state.memory_mb if connect is None else min(state.memory_mb, RECEIVED_MB)) << 20,
        model=model,
        initial=model.w.clone(),
        initial_buffers=model.b.clone() if len(model.b) else None,
        worker=worker,
        backend=backend,
        store=store,
        iterate=Iterate(evaluation.iterate, evaluation.window, evaluation.decay),
        momentum=experiment.clients.momentum,
        availability=experiment.clients.availability,
        min_replies=experiment.flower.min_replies,
    )
    return experiment, federation


def build_worker(experiment: Experiment, dataset: Dataset | None = None) -> tuple[Experiment, Worker]:
    """(the experiment with every default resolved, a worker that can train any client).

    `dataset`: the experiment's data where they are loaded already.
    """
    device = _check_device(experiment.engine.device)
    dataset = _on_device(load_dataset(experiment.dataset) if dataset is None else dataset, device)
    split, root, validation = partition_data(experiment, dataset)
    module = init_module(lambda: make_module(experiment.model, dataset), experiment.seed)
    trainer = select_trainer(experiment.engine.trainer, module)
    model = FlatModel(module, device, experiment.model.buffers, channels_last=trainer == "channels_last")
    _check_model_fits(model, dataset)
    clients, parts, attack = experiment.clients, experiment.algorithm, experiment.attack
    block = experiment.engine.block or default_block(model.dim, clients.per_round or clients.total)
    experiment = replace(experiment, engine=replace(experiment.engine, block=block, trainer=trainer))
    sgd = LocalSGD(clients.momentum, clients.weight_decay, clients.clip_norm)
    loop = Loop(model, dataset, double_softmax=experiment.model.double_softmax, sgd=sgd)
    augment = make_augment(clients.augment)
    augment = None if augment is None else fit(augment, dataset)
    work = LocalWork(clients.local_steps, clients.local_epochs, clients.batch_size, clients.sampling)
    test_block = experiment.evaluation.batch_size
    return experiment, Worker(
        LocalTrainer(loop, make_trainer(trainer, loop), parts.correction, work, test_block, augment),
        dataset,
        split,
        root,
        parts.aggregate,
        _fitted(attack, dataset),
        bool(experiment.attackers.forge_extras),
        FederationInfo(model.dim, clients.total, clients.per_round or clients.total, model.segments, device),
        test_block,
        validation,
    )


def _fitted(attack: Any, dataset: Dataset) -> Any:
    """The attack with the settings that depend on the data."""
    if isinstance(attack, FitsData):
        with named_errors(f"{name_of(attack)}.for_data"):
            return attack.for_data(dataset.classes, dataset.x)
    return attack


def worker_from_tables(tables: Mapping[str, Any], dataset: Dataset | None = None) -> Worker:
    """The worker of a resolved spec; the entry point of worker processes."""
    return build_worker(load(tables), dataset)[1]


def build_adversary(experiment: Experiment) -> Adversary | None:
    """The attack of an experiment and its attackers; None without an attack."""
    attack, spec, clients = experiment.attack, experiment.attackers, experiment.clients
    if attack is None:
        return None
    count = spec.drawn(clients)
    fixed = rng(experiment.seed, "attackers").choice(clients.total, 0 if spec.redraw else count, replace=False)
    fixed_ids = frozenset(fixed.tolist())
    return Adversary(attack, count, spec.of_sampled, spec.redraw, fixed_ids, bool(spec.forge_extras))


def select_backend(experiment: Experiment, worker: Worker) -> Backend:
    """Where clients train: this process, worker processes, or a Ray cluster. It affects only the time a run takes."""
    if experiment.engine.executor == "flower":
        raise SpecError(
            "engine.executor: 'flower' runs one experiment, with `dragfl run` or dragfl.run; use 'local' or 'ray' here"
        )
    if experiment.engine.executor == "ray":
        return _ray_backend(experiment, worker)
    requested, work, cohort = experiment.engine.workers, client_work(worker), worker.info.per_round
    workers = min(available_cores() if requested == "auto" else requested, cohort)
    large = work * cohort >= ROUND_WORK and work * cohort * experiment.rounds >= RUN_WORK
    if workers == 1 or (requested == "auto" and not (large and worker.info.device == "cpu")):
        return LocalBackend(worker)
    reason = _needs_cpu(worker) or why_not_portable(experiment, "set engine.workers = 1")
    if reason is not None:
        if requested == "auto":
            return LocalBackend(worker)
        raise SpecError(f"engine.workers: this experiment cannot be sent to {requested} worker processes: {reason}")
    tables = experiment.tables()
    piece = int(min(max(1.0, PIECE_WORK / work), 64.0))
    reusable = not has_own_parts(tables)
    return PoolBackend(worker, ENTRY_POINT, tables, workers, piece, reusable, required=requested != "auto")


def _ray_backend(experiment: Experiment, worker: Worker) -> Backend:
    """Workers of a Ray cluster. They receive the dataset itself, so it needs no name."""
    if refuses_own_code():
        raise SpecError(
            "engine.executor: 'ray' is not possible in safe mode, since Ray's workers import modules from the current "
            "folder; use engine.executor = 'local'"
        )
    require_ray()
    requested, named = experiment.engine.workers, replace(experiment, dataset="digits")
    reason = _needs_cpu(worker) or why_not_portable(named, "set engine.executor = 'local'")
    if reason is not None:
        raise SpecError(f"engine.executor: this experiment cannot be sent to workers of a Ray cluster: {reason}")
    blocks = -(-worker.info.per_round // (experiment.engine.block or 1))
    workers = None if requested == "auto" else requested
    return RayBackend(worker, ENTRY_POINT, named.tables(), workers, blocks, available_cores())


def _needs_cpu(worker: Worker) -> str | None:
    device = worker.info.device
    return None if device == "cpu" else f"worker processes need engine.device = 'cpu', not '{device}'"


def client_work(worker: Worker) -> float:
    """Parameters x samples that a client passes through the model in a round, approximately."""
    work, samples = worker.local.work, len(worker.dataset.y) / worker.info.clients
    if work.epochs is None:
        return float(worker.info.dim * work.most_steps(1) * work.batch_size)
    most = work.epochs[1] if isinstance(work.epochs, tuple) else work.epochs
    return worker.info.dim * most * max(1.0, samples)


def load_dataset(given: str | Dataset, progress: Progress | None = None) -> Dataset:
    """Load a dataset by name, from files, or from `module:attr` (a Dataset or a function that returns one)."""
    if not isinstance(given, str) or given.partition(":")[0] in data.FILE_KINDS or ":" not in given:
        return data.load(given, progress)
    found = import_object("data.dataset", given)
    with named_errors(f"data.dataset: {given}"):
        dataset = found() if callable(found) else found
    if not isinstance(dataset, Dataset):
        raise SpecError(f"data.dataset: {given} is a {type(dataset).__name__}; it must be a Dataset or make one")
    return dataset


def hold_out_validation(experiment: Experiment, dataset: Dataset) -> NDArray[np.int64]:
    """The training rows of the validation data, drawn uniformly."""
    fraction, samples = experiment.evaluation.validation, len(dataset.y)
    count = round(fraction * samples)
    if fraction and not 0 < count < samples:
        given = f"evaluation.validation: {fraction} of {samples} training samples is {count}"
        raise DataError(f"{given}; choose a fraction that holds out at least one sample and leaves at least one")
    draws = rng(experiment.seed, "validation")
    return np.sort(draws.choice(samples, count, replace=False)) if count else np.empty(0, np.int64)


def partition_data(experiment: Experiment, dataset: Dataset) -> tuple[ClientSplit, RootData | None, NDArray[np.int64]]:
    """(the samples of each client, the root data, the rows of the validation data).

    Validation data and disjoint root samples are taken out before the partition.
    """
    validation = hold_out_validation(experiment, dataset)
    rows = np.delete(np.arange(len(dataset.y)), validation) if len(validation) else None
    root, rest = sample_root_data(experiment, dataset, rows) if experiment.root is not None else (None, rows)
    clients, draws = experiment.clients.total, rng(experiment.seed, "partition")
    if experiment.flower.data == "own":  # the clients' data are not here
        return Split(np.empty(0, np.int64), np.zeros(clients + 1, np.int64)), root, validation
    split = partitions.partition_dataset(dataset, experiment.partition, clients, draws, rest)
    if split.clients != clients:
        raise DataError(f"the partition made {split.clients} clients and clients.total is {clients}")
    return split, root, validation


def sample_root_data(
    experiment: Experiment, dataset: Dataset, rows: NDArray[np.int64] | None = None
) -> tuple[RootData, NDArray[np.int64] | None]:
    """(the root data, with label noise and filtering as the spec asks; the training rows left to the clients).

    `rows`: the training rows that may be used, where some are held out.
    """
    spec, seed = experiment.root, experiment.seed
    assert spec is not None
    train = spec.source == "train"
    x, y = (dataset.x, dataset.y) if train else (dataset.test_x, dataset.test_y)
    allowed = rows if train and rows is not None else np.arange(len(y))
    every = allowed
    if spec.missing_classes is not None:
        if spec.missing_classes >= dataset.classes:
            given = f"root.missing_classes: {spec.missing_classes} of {dataset.classes} classes"
            raise DataError(f"{given}; leave at least one class with root samples")
        missing = rng(seed, "root missing").choice(dataset.classes, spec.missing_classes, replace=False)
        allowed = allowed[~np.isin(y.cpu().numpy()[allowed], missing)]
    if spec.size >= len(allowed):
        raise DataError(f"root.size: {spec.size} of the {len(allowed)} {spec.source} samples; choose a smaller root")
    labels = y.cpu().numpy()[allowed]
    drawn = root_data.sample_root(labels, spec.size, rng(seed, "root"), spec.bias, spec.biased_class)
    index = torch.from_numpy(allowed[drawn]).to(y.device)
    root_x, root_y = x[index], y[index]
    if spec.noise:
        root_y = root_data.add_label_noise(root_y, dataset.classes, spec.noise, rng(seed, "root noise"))
    if spec.filter == "confident":
        with one_thread():  # several threads wait for each other at every one of many small steps
            keep = root_data.confident_samples(dataset.inputs(root_x), root_y, dataset.classes, rng(seed, "root clean"))
        root_x, root_y = root_x[keep], root_y[keep]
        if not len(root_y):
            raise DataError("root.filter: no root sample is left; use more root data or less label noise")
    rest = np.setdiff1d(every, allowed[drawn]) if spec.disjoint and train else rows
    return RootData(root_x, root_y, spec.accumulate, spec.fixed_batch), rest


def make_module(spec: Model, dataset: Dataset) -> nn.Module:
    """The module of a spec; an nn.Module object is copied, so training does not change the user's own."""
    if isinstance(spec.make, nn.Module):
        return copy.deepcopy(spec.make)
    module = call_model(spec.make, dataset.shape, dataset.classes, spec.settings)
    if not isinstance(module, nn.Module):
        raise SpecError(f"model.name: {name_of(spec.make)} made a {type(module).__name__}; return an nn.Module")
    return module


def _check_model_fits(model: FlatModel, dataset: Dataset) -> None:
    """One forward pass before the first round, so that a wrong shape is reported at once."""
    model.module.eval()
    who = f"model.name: {name_of(model.module)}"
    try:
        with torch.no_grad(), model_errors(model.module):
            scores: Any = model.module(dataset.inputs(dataset.x[:2]))
    except (RuntimeError, ValueError, TypeError, IndexError) as error:  # of its layers
        problem = f"{who}: it does not accept inputs of shape {dataset.shape}: {' '.join(str(error).split())}"
        raise SpecError(f"{problem}; choose a model for such inputs, or another data.dataset") from None
    if not isinstance(scores, torch.Tensor) or not scores.is_floating_point():
        kind = scores.dtype if isinstance(scores, torch.Tensor) else type(scores).__name__
        raise SpecError(f"{who}: its output is a {kind}; it must be a float tensor of class scores")
    if not torch.isfinite(scores).all():
        raise SpecError(f"{who}: its output for 2 samples holds a NaN or an infinity; check its initial weights")
    shape = tuple(scores.shape)
    if len(shape) != 2 or shape[1] < dataset.classes:
        raise SpecError(
            f"{who}: its output has shape {shape} for 2 samples; it must have {dataset.classes} scores a sample"
        )


def _check_directions(experiment: Experiment, worker: Worker) -> None:
    """Refuse root data of one class, and directions that do not fit in memory; warn of classes without root samples."""
    if worker.root is None or "directions" not in needs_of(worker.aggregate):
        return
    name, samples, classes = experiment.algorithm.name, len(worker.root.y), worker.dataset.classes
    present = sorted(set(worker.root.y.tolist()))
    if len(present) == 1:
        raise SpecError(
            f"root: all {samples} root samples have class {present[0]}, and {name} compares updates with the classes "
            "of the root data; use more root data or another root.bias"
        )
    K, d = len(worker.root_classes), worker.info.dim
    if 4 * K * d > DIRECTION_BYTES:
        size, limit, most = 4 * K * d / 2**30, DIRECTION_BYTES / 2**30, max(1, DIRECTION_BYTES // (4 * d))
        raise SpecError(
            f"algorithm.groups: the directions of {K} classes with {d} parameters take {size:.3g} GiB, more than "
            f"{limit:.3g} GiB; lower algorithm.groups to at most {most}"
        )
    missing = sorted(set(range(classes)).difference(present))
    if missing:
        few = ", ".join(map(str, missing[:5])) + (", ..." if len(missing) > 5 else "")
        log.warning(
            "%s: %d of %d classes have no root sample (%s), so they have no direction; raise root.size = %d",
            *(name, len(missing), classes, few, samples),
        )


def _warn_of_batch_size(experiment: Experiment, split: ClientSplit) -> None:
    """Warn of clients that have fewer samples than a minibatch; their data may also be elsewhere."""
    batch, sizes = experiment.clients.batch_size, split.sizes
    few = sizes[(sizes > 0) & (sizes < batch)]
    if len(few):
        repeats = experiment.clients.sampling == "replacement"
        effect = "their minibatches repeat samples" if repeats else "their minibatches are all of their samples"
        warnings.warn(
            f"clients.batch_size: {batch} is larger than the data of {len(few)} of {len(sizes)} clients (the smallest "
            f"has {few.min()}); {effect}; lower it, or choose a partition with larger clients",
            DragflWarning,
            stacklevel=2,
        )


def default_block(dim: int, cohort: int) -> int:
    """Clients folded together: up to 32, with at most BLOCK_BYTES of updates.

    The blocks are about equal, and an even number of them where they are few: two workers, each of which trains and
    folds whole blocks, then finish together.
    """
    fit = min(32, max(1, BLOCK_BYTES // (4 * dim)))
    blocks = -(-cohort // fit)
    return -(-cohort // (blocks + blocks % 2))


def _check_device(name: str) -> str:
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
