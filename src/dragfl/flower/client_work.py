"""What a node computes for an order: local training with its state, or a full gradient."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from flwr.app import Message
from numpy.typing import NDArray
from torch import Tensor

from dragfl.build import build_worker, load_dataset
from dragfl.config.spec import Experiment
from dragfl.data.dataset import Dataset
from dragfl.data.partitions import IID, Split
from dragfl.engine import calls
from dragfl.engine.client import ClientResults, TrainTask
from dragfl.engine.simulator import Worker
from dragfl.engine.threads import one_thread, own_generator
from dragfl.errors import SpecError
from dragfl.flower.client_states import delete_states, load_state, save_state, state_folder
from dragfl.flower.hello import PARTITION_ID, partition_id
from dragfl.flower.messages import Order, gradient_reply, lost_reply, read_order, update_reply

STATE_DIR = "state-dir"  # of node-config


@dataclass(frozen=True)
class ClientWork:
    """A worker with the data that this node can train on."""

    worker: Worker
    own_data: bool  # all training rows are the node's own; else those of its partition are


def prepare_client(experiment: Experiment, dataset: str | None, classes: int | None = None) -> ClientWork:
    """Load the data and build the model. `dataset`: the node's own data; `classes`: of the server's dataset."""
    if dataset is None:
        if experiment.flower.data == "own":
            raise SpecError('flower.data: "own", and this node has no data; give dataset=... in its node-config')
        root = experiment.root  # its labels are the server's concern; its rows are taken out of the partition
        plain = None if root is None else replace(root, noise=0.0, filter="none")
        return ClientWork(build_worker(replace(experiment, root=plain))[1], own_data=False)
    alone = replace(
        experiment,
        partition=IID(),
        root=None,
        clients=replace(experiment.clients, total=1, per_round=1),
        evaluation=replace(experiment.evaluation, validation=0.0, target_on="test"),
    )
    worker = build_worker(alone, _with_classes(load_dataset(dataset), classes))[1]
    clients = experiment.clients
    info = replace(worker.info, clients=clients.total, per_round=clients.per_round or clients.total)
    return ClientWork(replace(worker, info=info), own_data=True)


def _with_classes(dataset: Dataset, classes: int | None) -> Dataset:
    """A node may have no sample of the last classes; its model must have all of them."""
    if classes is None or classes <= dataset.classes:
        return dataset
    return replace(dataset, classes=classes, class_names=())


def train(work: ClientWork, message: Message, node_config: Mapping[str, Any]) -> Message:
    """Train from the state that the server has accepted, keep the new state as pending, and reply."""
    order, worker = _read(work, message, node_config)
    keeps = worker.local.keeps
    if not keeps.shapes:
        return update_reply(message, order, _trained(worker, order.task, {}))
    folder = _state_folder(node_config, order)
    state = load_state(folder, order.accepted, keeps)
    if state is None and not order.zero_lost:
        return lost_reply(message, order)
    delete_states(folder, {order.accepted, order.durable}, before=order.round)
    results = _trained(worker, order.task, keeps.zeros() if state is None else state)
    save_state(folder, order.round, results.states[0])
    return update_reply(message, order, results, from_zeros=state is None)


def full_gradient(work: ClientWork, message: Message, node_config: Mapping[str, Any]) -> Message:
    """The gradient of all the client's samples at the model it was sent."""
    order, worker = _read(work, message, node_config)
    with one_thread(), own_generator():
        return gradient_reply(message, order, worker.gradients(order.task))


def _trained(worker: Worker, task: TrainTask, state: Mapping[str, Tensor]) -> ClientResults:
    """The client's result, computed as in a round of the simulator."""
    here = {name: value.to(worker.info.device) for name, value in state.items()}
    with one_thread(), own_generator():
        return worker.train(replace(task, states=(here,)))


def _read(work: ClientWork, message: Message, node_config: Mapping[str, Any]) -> tuple[Order, Worker]:
    """(the checked order, a worker in which the order's client holds the samples of this node)."""
    worker, info, model = work.worker, work.worker.info, work.worker.local.loop.model
    start = None if worker.attack is None else calls.init(worker.attack, info)
    order = read_order(message, dim=info.dim, buffers=len(model.b), clients=info.clients, attack_state=start)
    if info.device != "cpu":
        sent = {name: value.to(info.device) for name, value in order.task.broadcast.items()}
        order = replace(order, task=replace(order.task, w=order.task.w.to(info.device), broadcast=sent))
    rows = np.arange(len(worker.dataset.y)) if work.own_data else _partition(worker, node_config, order.client)
    offsets = np.where(np.arange(info.clients + 1) > order.client, len(rows), 0)
    return order, replace(worker, split=Split(rows, offsets))


def _partition(worker: Worker, node_config: Mapping[str, Any], client: int) -> NDArray[np.int64]:
    """The samples of `partition-id`, by default of the client's own number."""
    given = partition_id(node_config)
    part = client if given is None else given
    if part >= worker.split.clients:
        raise SpecError(
            f"node-config: {PARTITION_ID} = {part}, and the data have the parts 0 to {worker.split.clients - 1}; "
            "give another, or raise clients.total"
        )
    return worker.split.samples_of(part)


def _state_folder(node_config: Mapping[str, Any], order: Order) -> Path:
    given = Path(str(node_config.get(STATE_DIR, ""))).expanduser()
    if not given.is_absolute():
        problem = "it is a relative path" if STATE_DIR in node_config else "there is none"
        raise SpecError(
            f"node-config: {STATE_DIR}: {problem}, and this algorithm keeps a state at each client; "
            f"give the SuperNode --node-config \"{STATE_DIR}='FOLDER'\", an absolute path"
        )
    folder = state_folder(given, order.run, order.client)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise SpecError(
            f"node-config: {STATE_DIR}: {given} cannot be written ({error.strerror}); give a folder that the user of "
            "the SuperNode may write"
        ) from None
    return folder
