"""A client's work in one round: from the model, the broadcast, its state and its data to its result.

`train_client` is the one place where a client trains. The simulator calls its group form, `train_group`, for the
clients of a block; a client of a real federation calls `train_client` for itself.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from dragfl.arithmetic import finite_rows
from dragfl.engine import calls
from dragfl.engine.client_store.layout import Layout
from dragfl.own_code import name_of
from dragfl.rng import key, rng
from dragfl.training.augment import Augment, Batches, augment_batches
from dragfl.training.batches import Sampling, draw, steps_in
from dragfl.training.loop import Loop, Share
from dragfl.training.select import GroupTrainer
from dragfl.types import Correction, LocalResult, RoundContext, State, Updates

BUFFERS = "buffers"  # the name of a model's buffers (BatchNorm statistics) in the broadcast and among the extras
Range = int | tuple[int, int]


@dataclass(frozen=True)
class LocalWork:
    """How much a client trains in a round: local steps, or epochs; a range is drawn once for each client."""

    steps: Range | None
    epochs: Range | None
    batch_size: int
    sampling: Sampling

    def steps_of(self, seed: int, client: int, samples: int) -> int:
        """The number of local steps of this client, the same in every round."""
        work = self._work
        count = int(rng(seed, "local_work", client).integers(work[0], work[1] + 1)) if isinstance(work, tuple) else work
        return self._as_steps(count, samples)

    def most_steps(self, samples: int) -> int:
        """The largest number of local steps that any client with so many samples may make."""
        work = self._work
        return self._as_steps(work[1] if isinstance(work, tuple) else work, samples)

    @property
    def _work(self) -> Range:
        return (self.steps if self.epochs is None else self.epochs) or 1

    def _as_steps(self, count: int, samples: int) -> int:
        return count if self.epochs is None else steps_in(count, samples, self.batch_size)


@dataclass(frozen=True)
class ClientData:
    """The samples of one client: its rows of the stored tensors."""

    x: Tensor
    y: Tensor
    rows: NDArray[np.int64]


@dataclass(frozen=True)
class Client:
    """One client at the start of its local training."""

    id: int
    state: Mapping[str, Tensor]  # what it keeps between rounds
    data: ClientData


@dataclass(frozen=True)
class ClientResult:
    """What one client sends up, and the state it keeps."""

    client: int
    delta: Tensor  # (d,)
    samples: int
    steps: int
    loss: float
    extra: Mapping[str, Tensor]
    state: Mapping[str, Tensor]


@dataclass(frozen=True)
class LocalTrainer:
    """What a client trains with: the model and its loop, the correction, the amount of work."""

    loop: Loop
    trainer: GroupTrainer
    correction: Correction[Any]
    work: LocalWork
    block: int  # samples of a full gradient that are evaluated at a time
    augment: Augment | None = None

    @cached_property
    def keeps(self) -> Layout:
        """The layout of the state that a client keeps."""
        return Layout.of(self.correction.fields, self.loop.model.dim)

    @cached_property
    def sends(self) -> Layout:
        """The layout of what a client sends up with its update: the correction's extras and the model's buffers."""
        extras, buffers = Layout.of(self.correction.sends, self.loop.model.dim), tuple(self.loop.model.b.shape)
        return replace(extras, shapes={**extras.shapes, BUFFERS: buffers}) if len(self.loop.model.b) else extras


def train_client(
    local: LocalTrainer, w: Tensor, broadcast: Mapping[str, Tensor], client: Client, context: RoundContext
) -> ClientResult:
    """Train one client from the model `w`."""
    return train_group(local, w, broadcast, [client], context, torch.empty(1, len(w), device=w.device))[0]


def train_group(
    local: LocalTrainer,
    w: Tensor,
    broadcast: Mapping[str, Tensor],
    clients: Sequence[Client],
    context: RoundContext,
    out: Tensor,
) -> list[ClientResult]:
    """Train clients from the same model, as many at once as the trainer can; their updates are the rows of `out`."""
    local.loop.buffers = broadcast.get(BUFFERS)
    decay = local.loop.sgd.decay(w)
    shares = [_share(local, broadcast, client, context, decay) for client in clients]
    seed_forward(context, clients[0].id)
    with calls.model_errors(local.loop.model.module):
        losses = local.trainer.train_group(w, shares, context.lr, out)
    buffers = {} if local.loop.buffers is None else {BUFFERS: local.loop.model.b.clone()}
    results = []
    for client, share, delta, loss in zip(clients, shares, out, losses, strict=True):
        steps, samples = len(share.batches), len(client.data.rows)
        gradient = partial(local.trainer.gradient, w, share.x, share.y, client.data.rows, local.block)
        result = LocalResult(delta, steps, context.lr, samples, gradient)
        extra, state = calls.client_finish(local.correction, result, client.state, broadcast, context)
        extra = {**extra, **buffers}
        local.sends.check(extra, f"{name_of(local.correction)}: extra")
        local.keeps.check(state, f"{name_of(local.correction)}: client state")
        results.append(ClientResult(client.id, delta, samples, steps, loss, extra, state))
    return results


def _share(
    local: LocalTrainer, broadcast: Mapping[str, Tensor], client: Client, context: RoundContext, decay: Tensor | None
) -> Share:
    """The client's minibatches of this round and the direction of its steps."""
    data, work = client.data, local.work
    steps = work.steps_of(context.seed, client.id, len(data.rows))
    batches = draw(context.rng("batch", client.id), len(data.rows), steps, work.batch_size, work.sampling)
    affine = calls.affine(local.correction, client.state, broadcast, context, local.loop.model.dim)
    affine = local.loop.sgd.decayed(affine, decay)
    augment = bind_augment(local.augment, context, client.id)
    return Share(data.x, data.y, [data.rows[batch] for batch in batches], affine, augment=augment)


def bind_augment(augment: Augment | None, context: RoundContext, address: int | str) -> Batches | None:
    """The augmentation with the draws of a client, or of the root data, in this round."""
    return None if augment is None else partial(augment_batches, augment, context, address)


def seed_forward(context: RoundContext, address: int | str) -> None:
    """Address the draws of a model that is random in its forward pass (drop-out). The caller restores torch's own."""
    seed = key(context.seed, "forward", context.t, address, bits=64) & (2**63 - 1)
    torch.default_generator.manual_seed(seed)


@dataclass(frozen=True)
class TrainTask:
    """A block of clients to train from w; `states` has the state of each, in the same order."""

    clients: tuple[int, ...]
    w: Tensor
    broadcast: Mapping[str, Tensor]
    context: RoundContext
    states: tuple[Mapping[str, Tensor], ...]
    attackers: frozenset[int] = frozenset()  # those that craft their update from their own alone
    attack_state: State = None


@dataclass(frozen=True)
class ClientResults:
    """What the server receives of a block. Client ids are in `updates.client`; all fields have that order."""

    updates: Updates
    loss: tuple[float, ...]
    steps: tuple[int, ...]
    states: tuple[Mapping[str, Tensor], ...]

    @property
    def bytes_up(self) -> int:
        return self.updates.delta.nbytes + sum(value.nbytes for value in self.updates.extra.values())

    def usable(self) -> Tensor:
        """(k,) bool: finite update and extras, and a positive weight. The one place where results are screened."""
        weight = self.updates.weight
        keep = finite_rows(self.updates.norm) & torch.isfinite(weight) & (weight > 0)
        for value in self.updates.extra.values():
            keep = keep & torch.isfinite(value.reshape(len(value), -1)).all(1)
        return keep


def block_of(results: Sequence[ClientResult], delta: Tensor) -> ClientResults:
    """The results of a block's clients, whose updates are the rows of `delta`."""
    updates = Updates(
        delta,
        torch.tensor([float(r.samples) for r in results], dtype=torch.float64, device=delta.device),
        torch.tensor([r.client for r in results]),
        {name: torch.stack([r.extra[name] for r in results]) for name in results[0].extra},
        torch.tensor([r.steps for r in results]),
    )
    loss, steps = tuple(r.loss for r in results), tuple(r.steps for r in results)
    return ClientResults(updates, loss, steps, tuple(r.state for r in results))


def concat(blocks: Sequence[ClientResults]) -> ClientResults:
    """All blocks as one."""
    return ClientResults(
        Updates.concat([b.updates for b in blocks]),
        sum((b.loss for b in blocks), ()),
        sum((b.steps for b in blocks), ()),
        sum((b.states for b in blocks), ()),
    )
