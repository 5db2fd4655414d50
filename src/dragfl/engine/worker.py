"""One worker: a model, the data, and the three things it can be asked to do: train a block, the root, or evaluate."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from dragfl.arithmetic import finite_rows
from dragfl.config.tables import Clients, Range, Root
from dragfl.data.dataset import Dataset
from dragfl.data.partitions.split import ClientSplit
from dragfl.engine.aggregation import BlockResult, fold
from dragfl.errors import SpecError
from dragfl.rng import key, rng
from dragfl.training.batches import draw, steps_in
from dragfl.training.loop import Loop, Share
from dragfl.training.select import Trainer, make_trainer
from dragfl.types import (
    Affine,
    Aggregate,
    Attack,
    Correction,
    DataAttack,
    FederationInfo,
    LocalResult,
    MeasuresSuccess,
    Plan,
    RoundContext,
    State,
    Updates,
    View,
)


@dataclass(frozen=True)
class TrainTask:
    """A block of clients to train from w; `states` is what each keeps, in the same order."""

    clients: tuple[int, ...]
    w: Tensor
    sent: Mapping[str, Tensor]
    context: RoundContext
    states: tuple[Mapping[str, Tensor], ...]
    attackers: frozenset[int] = frozenset()  # those whose update is crafted here, from nothing but itself
    attack_state: State = None


@dataclass(frozen=True)
class ClientResults:
    """What the server receives of a block, and what it can know of it."""

    updates: Updates
    loss: tuple[float, ...]
    steps: tuple[int, ...]
    states: tuple[Mapping[str, Tensor], ...]

    @property
    def bytes_up(self) -> int:
        return self.updates.delta.nbytes + sum(value.nbytes for value in self.updates.extra.values())

    def usable(self) -> Tensor:
        """(k,) bool: whose update, extras and weight can be used. The one place where the engine drops updates."""
        weight = self.updates.weight
        keep = finite_rows(self.updates.norm) & torch.isfinite(weight) & (weight > 0)
        for value in self.updates.extra.values():
            keep = keep & torch.isfinite(value.reshape(len(value), -1)).all(1)
        return keep


def concat(kept: Sequence[ClientResults]) -> ClientResults:
    """All blocks as one."""
    return ClientResults(
        Updates.concat([b.updates for b in kept]),
        sum((b.loss for b in kept), ()),
        sum((b.steps for b in kept), ()),
        sum((b.states for b in kept), ()),
    )


Score = tuple[int, float]  # of a test block: right answers, summed loss
BUFFERS = "buffers"  # the name under which a model's buffers travel, down and up


class Worker:
    """Holds what is fixed for a run; every call is a function of its arguments."""

    def __init__(
        self,
        loop: Loop,
        dataset: Dataset,
        split: ClientSplit,
        root: tuple[Tensor, Tensor] | None,
        clients: Clients,
        root_spec: Root | None,
        correction: Correction[Any],
        aggregate: Aggregate[Any, Any],
        attack: Attack[Any] | None,
        info: FederationInfo,
        test_block: int,
        trainer: Trainer = "reference",
    ) -> None:
        self.trainer = make_trainer(trainer, loop)
        self.loop, self.dataset, self.split, self.root = loop, dataset, split, root
        self.clients, self.root_spec, self.attack = clients, root_spec, attack
        self.correction, self.aggregate = correction, aggregate
        self.info, self.test_block = info, test_block

    def train(self, job: TrainTask, out: Tensor | None = None) -> ClientResults:
        """Train every client of the block from the same model and craft what its attackers send.

        `out` (k, d) is memory for the updates; rows that attackers replace are in memory of their own.
        """
        k = len(job.clients)
        self.loop.buffers = job.sent.get(BUFFERS)
        delta = torch.empty(k, self.info.dim, device=job.w.device) if out is None else out
        loss, steps, done, states, extras, weight = [], [], [], [], [], []
        for first in range(0, k, self.trainer.group):
            members = range(first, min(k, first + self.trainer.group))
            shares = []
            for i in members:
                share, mine = self._share(job, i)
                shares.append(share)
                gradient = partial(self.loop.gradient, job.w, share.x, share.y, mine, self.test_block)
                steps.append(len(share.batches))
                weight.append(float(len(mine)))
                done.append(LocalResult(delta[i], len(share.batches), job.context.lr, len(mine), gradient))
            _address_forward(job.context, job.clients[first])
            loss += self.trainer.train_group(job.w, shares, job.context.lr, delta[first : members.stop])
            own = {} if self.loop.buffers is None else {BUFFERS: self.loop.model.b.clone()}
            for i in members:
                extra, state = self.correction.client_finish(done[i], job.states[i], job.sent, job.context)
                states.append(state)
                extras.append({**extra, **own})
        updates = Updates(
            delta,
            torch.tensor(weight, dtype=torch.float64, device=delta.device),
            torch.tensor(job.clients),
            {name: torch.stack([extra[name] for extra in extras]) for name in extras[0]},
            torch.tensor(steps),
        )
        return ClientResults(self._crafted(job, updates), tuple(loss), tuple(steps), tuple(states))

    def _share(self, job: TrainTask, i: int) -> tuple[Share, NDArray[np.int64]]:
        """What a client of the block trains on in this round, and all its rows."""
        m = job.clients[i]
        x, y, mine = self._samples(job, m)
        count = self._steps(job.context.seed, m, len(mine))
        batches = draw(job.context.rng("batch", m), len(mine), count, self.clients.batch_size, self.clients.sampling)
        affine = self.correction.affine(job.states[i], job.sent, job.context)
        return Share(x, y, [mine[batch] for batch in batches], affine), mine

    def fold(self, job: TrainTask, plan: Plan) -> BlockResult:
        """Train a block and fold it: of its updates only sums are left."""
        return fold(self.aggregate, plan, self.train(job))

    def _samples(self, job: TrainTask, client: int) -> tuple[Tensor, Tensor, NDArray[np.int64]]:
        """(inputs, labels, the client's rows of them); an attack that can be called spoils a copy of its own."""
        x, y, mine = self.dataset.x, self.dataset.y, self.split.samples_of(client)
        attack: object = self.attack
        if client not in job.attackers or not isinstance(attack, DataAttack):
            return x, y, mine
        rows = torch.from_numpy(mine).to(x.device)
        draws = rng(job.context.seed, "poison", client)
        scores = partial(self.loop.predict, job.w, block=self.test_block)
        x, y = attack.poison(x[rows], y[rows], scores, draws)
        return x, y, np.arange(len(y))

    def gradients(self, job: TrainTask) -> Updates:
        """The full gradient of every client at the model sent out, for a correction that asks for their mean."""
        self.loop.buffers = job.sent.get(BUFFERS)
        rows, weight = [], []
        for m in job.clients:
            x, y, mine = self._samples(job, m)
            _address_forward(job.context, f"gradient {m}")
            rows.append(self.loop.gradient(job.w, x, y, mine, self.test_block))
            weight.append(float(len(mine)))
        sizes = torch.tensor(weight, dtype=torch.float64, device=job.w.device)
        return Updates(torch.stack(rows), sizes, torch.tensor(job.clients))

    def train_root(self, w: Tensor, context: RoundContext, buffers: Tensor | None = None) -> Tensor:
        """The server's own update: the same local steps on the root data."""
        self.loop.buffers = buffers
        assert self.root is not None and self.root_spec is not None
        x, y = self.root
        draws = context.rng("root")
        count = self._nominal_steps(len(y))
        if self.root_spec.fixed_batch:
            batches = draw(draws, len(y), 1, self.root_spec.fixed_batch, "replacement") * count
        else:
            batches = draw(draws, len(y), count, self.clients.batch_size, self.clients.sampling)
        out = torch.empty_like(w)
        _address_forward(context, "root")
        self.trainer.train(w, x, y, batches, context.lr, Affine(), out, accumulate=self.root_spec.accumulate)
        return out

    @property
    def test_blocks(self) -> int:
        """The test set is cut into blocks fixed by the spec, so that the sums have one order."""
        return -(-len(self.dataset.test_y) // self.test_block)

    def score(self, w: Tensor, block: int, buffers: Tensor | None = None) -> Score:
        """(right answers, summed loss) of one test block."""
        self.loop.buffers = buffers
        rows = slice(block * self.test_block, (block + 1) * self.test_block)
        return self.loop.score(w, self.dataset.test_x[rows], self.dataset.test_y[rows])

    def evaluate(self, w: Tensor, scores: Iterable[Score], buffers: Tensor | None = None) -> dict[str, float]:
        """Accuracy and loss, of the test blocks' scores; how often a backdoor opens, where an attack plants one."""
        self.loop.buffers = buffers
        x, y = self.dataset.test_x, self.dataset.test_y
        right, loss = 0, 0.0
        for answers, value in scores:
            right, loss = right + answers, loss + value
        found = {"accuracy": right / len(y), "loss": loss / len(y)}
        attack: object = self.attack
        if isinstance(attack, MeasuresSuccess):
            predict = partial(self.loop.predict, w, block=self.test_block)
            found["attack_success"] = attack.success_rate(x, y, predict)
        return found

    def _steps(self, seed: int, client: int, samples: int) -> int:
        """The local steps of a client; from a range each client has one number for the whole run."""
        span = self.clients.local_steps if self.clients.local_epochs is None else self.clients.local_epochs
        number = _in_range(span, seed, client)
        return number if self.clients.local_epochs is None else steps_in(number, samples, self.clients.batch_size)

    def _nominal_steps(self, samples: int) -> int:
        """The largest number of steps a client may make, which the server makes too."""
        span = self.clients.local_steps if self.clients.local_epochs is None else self.clients.local_epochs
        number = span[1] if isinstance(span, tuple) else span or 1
        return number if self.clients.local_epochs is None else steps_in(number, samples, self.clients.batch_size)

    def _crafted(self, job: TrainTask, updates: Updates) -> Updates:
        """The block as sent: attackers that know only themselves replace their rows here."""
        rows = [i for i, m in enumerate(job.clients) if m in job.attackers]
        if self.attack is None or not rows:
            return updates
        crafted = []
        for i in rows:  # one at a time: an attacker that knows only itself must not see who shares its block
            own = updates.select(torch.tensor([i]))
            crafted.append(
                self.attack.craft(job.attack_state, View(own, info=self.info, w=job.w.clone()), job.context)[0]
            )
        return put_rows(updates, torch.tensor(rows), Updates.concat(crafted))


def put_rows(updates: Updates, index: Tensor, crafted: Updates) -> Updates:
    """The updates with some rows replaced by what attackers send."""
    expected = (len(index), updates.delta.shape[1])
    if tuple(crafted.delta.shape) != expected or crafted.extra.keys() != updates.extra.keys():
        raise SpecError(
            f"attack: sent updates of shape {tuple(crafted.delta.shape)} with extras {sorted(crafted.extra)}; "
            f"its view asks for {expected} with {sorted(updates.extra)}"
        )
    delta, weight = updates.delta.clone(), updates.weight.clone()
    delta[index], weight[index] = crafted.delta, crafted.weight
    extra = {name: value.clone() for name, value in updates.extra.items()}
    for name, value in extra.items():
        value[index] = crafted.extra[name]
    return replace(updates, delta=delta, weight=weight, extra=extra)


def _address_forward(context: RoundContext, who: int | str) -> None:
    """A model that draws as it computes, as drop-out does, draws by round and client. The caller restores torch's."""
    torch.default_generator.manual_seed(key(context.seed, "forward", context.t, who, bits=64) & (2**63 - 1))


def _in_range(span: Range | None, seed: int, client: int) -> int:
    if isinstance(span, tuple):
        return int(rng(seed, "local_work", client).integers(span[0], span[1] + 1))
    return span or 1
