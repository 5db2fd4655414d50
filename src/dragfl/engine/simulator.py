"""The simulator's worker: it holds the data of all clients, trains blocks of them, trains the root and evaluates.

Every call is a function of its arguments, so it does not matter in which process a worker runs.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from dragfl.data.dataset import Dataset
from dragfl.data.partitions.split import ClientSplit
from dragfl.engine import calls
from dragfl.engine.adversary import craft_alone
from dragfl.engine.aggregation import BlockResult, fold
from dragfl.engine.client import (
    BUFFERS,
    Client,
    ClientData,
    ClientResults,
    LocalTrainer,
    TrainTask,
    bind_augment,
    block_of,
    seed_forward,
    train_group,
)
from dragfl.engine.evaluation import Score, class_and_client_metrics, client_label_counts, mean_scores
from dragfl.rng import rng
from dragfl.training.batches import draw
from dragfl.training.loop import Share
from dragfl.types import (
    Affine,
    Aggregate,
    Attack,
    DataAttack,
    FederationInfo,
    MeasuresSuccess,
    Plan,
    RoundContext,
    Updates,
    UsesDirections,
)

DIRECTIONS = 16  # classes of the root data trained together; they have few samples, so more fit than of clients


@dataclass(frozen=True)
class RootData:
    """The server's trusted samples, and how it trains on them."""

    x: Tensor
    y: Tensor
    accumulate: bool = False  # never clear the gradient between steps, as in the authors' code
    fixed_batch: int | None = None  # one minibatch of this size for all steps, as in the authors' code


@dataclass(frozen=True)
class Worker:
    """Everything that a process needs to train any client of a federation."""

    local: LocalTrainer
    dataset: Dataset
    split: ClientSplit
    root: RootData | None
    aggregate: Aggregate[Any, Any]
    attack: Attack[Any] | None
    forge_extras: bool  # attackers forge their extras too
    info: FederationInfo
    test_block: int  # test samples evaluated at a time
    validation: NDArray[np.int64] = field(default_factory=lambda: np.empty(0, np.int64))  # training rows held out

    def train(self, task: TrainTask, out: Tensor | None = None) -> ClientResults:
        """Train every client of the block; attackers that know only themselves craft their update.

        `out` (k, d) is memory for the updates; the rows that attackers replace are in memory of their own.
        """
        k, group = len(task.clients), self.local.trainer.group
        delta = torch.empty(k, self.info.dim, device=task.w.device) if out is None else out
        results = []
        for first in range(0, k, group):
            end = min(k, first + group)
            members = [Client(task.clients[i], task.states[i], self._data(task, i)) for i in range(first, end)]
            results += train_group(self.local, task.w, task.broadcast, members, task.context, delta[first:end])
        block = block_of(results, delta)
        return replace(block, updates=craft_alone(self.attack, task, block.updates, self.info, self.forge_extras))

    def fold(self, task: TrainTask, plan: Plan) -> BlockResult:
        """Train a block and fold it; only its sums remain."""
        return fold(self.aggregate, plan, self.train(task))

    def gradients(self, task: TrainTask, out: Tensor | None = None) -> Updates:
        """The full gradient of every client of the block at the model sent out; `out` (k, d) is memory for them."""
        self.local.loop.buffers = task.broadcast.get(BUFFERS)
        delta = torch.empty(len(task.clients), self.info.dim, device=task.w.device) if out is None else out
        weight = []
        for i, m in enumerate(task.clients):
            data = self._data(task, i)
            seed_forward(task.context, f"gradient {m}")
            delta[i] = self.local.trainer.gradient(task.w, data.x, data.y, data.rows, self.test_block)
            weight.append(float(len(data.rows)))
        sizes = torch.tensor(weight, dtype=torch.float64, device=task.w.device)
        return Updates(delta, sizes, torch.tensor(task.clients))

    def _data(self, task: TrainTask, i: int) -> ClientData:
        """The samples of the block's i-th client; an attack on the data changes a copy of an attacker's."""
        client = task.clients[i]
        data = ClientData(self.dataset.x, self.dataset.y, self.split.samples_of(client))
        attack: object = self.attack
        if client not in task.attackers or not isinstance(attack, DataAttack):
            return data
        rows = torch.from_numpy(data.rows).to(data.x.device)
        predict = partial(self.local.loop.predict, task.w, block=self.test_block)
        self.local.loop.buffers = task.broadcast.get(BUFFERS)
        draws, classes = rng(task.context.seed, "poison", client), self.dataset.classes
        x, y = calls.poison(attack, data.x[rows], data.y[rows], predict, draws, classes)
        return ClientData(x, y, np.arange(len(y)))

    def train_root(self, w: Tensor, context: RoundContext, buffers: Tensor | None = None) -> Tensor:
        """The update of the root data, with as many local steps as a client may make, and a client's optimiser."""
        assert self.root is not None
        root, work = self.root, self.local.work
        self.local.loop.buffers = buffers
        draws, samples = context.rng("root"), len(root.y)
        steps = work.most_steps(samples)
        if root.fixed_batch:
            batches = draw(draws, samples, 1, root.fixed_batch, "replacement") * steps
        else:
            batches = draw(draws, samples, steps, work.batch_size, work.sampling)
        out = torch.empty(1, len(w), device=w.device)
        seed_forward(context, "root")
        sgd, augment = self.local.loop.sgd, bind_augment(self.local.augment, context, "root")
        share = Share(root.x, root.y, batches, sgd.decayed(Affine(), sgd.decay(w)), root.accumulate, augment)
        self.local.trainer.train_group(w, [share], context.lr, out)
        return out[0]

    def train_directions(self, w: Tensor, context: RoundContext, buffers: Tensor | None = None) -> Tensor:
        """(K, d) the update of each class of the root data, with a client's optimiser.

        The next call reuses the memory.
        """
        assert self.root is not None and isinstance(self.aggregate, UsesDirections)
        settings, work, trainer = self.aggregate.direction_settings, self.local.work, self.local.trainer
        self.local.loop.buffers = buffers
        decay = self.local.loop.sgd.decay(w)
        shares = []
        for k, rows in enumerate(self.root_classes):
            draws, count = context.rng("directions", k), min(settings.samples, len(rows))
            if settings.steps == 1:
                batches = [rows[draws.choice(len(rows), count, replace=False)]]
            else:
                steps = settings.steps or work.most_steps(len(self.root.y))
                batches = [rows[b] for b in draw(draws, len(rows), steps, settings.samples, work.sampling)]
            augment = bind_augment(self.local.augment, context, f"directions {k}")
            shares.append(
                Share(self.root.x, self.root.y, batches, self.local.loop.sgd.decayed(Affine(), decay), augment=augment)
            )
        out = self._directions
        group = max(trainer.group, DIRECTIONS)
        for first in range(0, len(shares), group):
            end = first + group
            seed_forward(context, f"directions {first}")
            trainer.train_group(w, shares[first:end], context.lr, out[first:end])
        return out

    @cached_property
    def _directions(self) -> Tensor:
        """Memory for the directions: to take new pages in every round would cost more than to compute them."""
        return torch.empty(len(self.root_classes), self.info.dim, device=self.info.device)

    @cached_property
    def root_classes(self) -> list[NDArray[np.int64]]:
        """The rows of the root data of each class that has some, or of each group of classes."""
        assert self.root is not None and isinstance(self.aggregate, UsesDirections)
        labels = self.root.y.cpu().numpy()
        groups = labels % self.aggregate.direction_settings.groups
        return [np.flatnonzero(groups == k) for k in np.unique(groups)]

    @property
    def test_blocks(self) -> int:
        """Number of blocks of the test set; their size is part of the spec, so that sums have one order."""
        return -(-len(self.dataset.test_y) // self.test_block)

    @property
    def evaluation_blocks(self) -> int:
        """The blocks of the test set, then those of the validation data."""
        return self.test_blocks - (-len(self.validation) // self.test_block)

    def score(self, w: Tensor, block: int, buffers: Tensor | None = None) -> Score:
        """The score of one block of the test set or of the validation data."""
        self.local.loop.buffers = buffers
        data, first = self.dataset, block * self.test_block
        if block < self.test_blocks:
            rows = slice(first, first + self.test_block)
            x, y = data.test_x[rows], data.test_y[rows]
        else:
            first -= self.test_blocks * self.test_block
            held_out = torch.from_numpy(self.validation[first : first + self.test_block]).to(data.y.device)
            x, y = data.x[held_out], data.y[held_out]
        correct, loss = self.local.loop.score(w, x, y)
        return Score(tuple(torch.bincount(y[correct], minlength=data.classes).tolist()), loss)

    def evaluate(self, w: Tensor, scores: Iterable[Score], buffers: Tensor | None = None) -> dict[str, Any]:
        """Accuracy and loss from the scores of all blocks; the attack's success rate where it has one."""
        self.local.loop.buffers = buffers
        scores, test = list(scores), self.test_blocks
        x, y = self.dataset.test_x, self.dataset.test_y
        metrics = mean_scores(scores[:test], len(y))
        if len(self.validation):
            held_out = mean_scores(scores[test:], len(self.validation))
            metrics |= {f"validation_{name}": value for name, value in held_out.items()}
        metrics |= class_and_client_metrics(scores[:test], *self._label_counts)
        attack: object = self.attack
        if isinstance(attack, MeasuresSuccess):
            predict = partial(self.local.loop.predict, w, block=self.test_block)
            metrics["attack_success"] = calls.success_rate(attack, x, y, predict)
        return metrics

    @cached_property
    def _label_counts(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """((classes,) of the test set, (clients, classes) of the clients' training data)."""
        y, test_y = (labels.cpu().numpy() for labels in (self.dataset.y, self.dataset.test_y))
        classes = self.dataset.classes
        return np.bincount(test_y, minlength=classes), client_label_counts(self.split, y, classes)
