"""A Flower federation as a backend of the engine: clients train on their nodes, the server folds their replies.

All messages of a round are sent at once. Replies are then read block by block, in the order of the simulator's sums, so
one block of updates is in memory at a time and the bits are the simulator's. A client that is offline, fails, sends
what cannot be used or does not reply by the deadline is left out of its block; `missing` has the reason.
"""

from __future__ import annotations

import logging
import os
import secrets
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import ClassVar, TypeVar

from flwr.app import Message
from torch import Tensor

from dragfl.config.tables import Flower
from dragfl.engine.aggregation import BlockResult, fold
from dragfl.engine.backends.local import LocalBackend
from dragfl.engine.client import ClientResults, TrainTask, concat
from dragfl.engine.evaluation import Score
from dragfl.engine.simulator import Worker
from dragfl.errors import DragflError
from dragfl.flower.accepted import Accepted
from dragfl.flower.exchange import Exchange, read_from
from dragfl.flower.messages import (
    Order,
    Payload,
    gradient_message,
    payload_of,
    read_gradient,
    read_update,
    train_message,
)
from dragfl.flower.nodes import Nodes
from dragfl.flower.records import SUPERLINK_ERRORS, Refused
from dragfl.flower.refusals import Refusals
from dragfl.flower.roster import Member, Roster
from dragfl.runs.directory import NODES, load_run
from dragfl.types import Plan, RoundContext, RoundRecord, Updates

# A message outlives the deadline by the time that it takes to pull all replies that have come before it.
GRACE_S, PULL_BYTES_PER_S = 60.0, 5e6
FAILING_ROUNDS = 3  # rounds without any reply but errors, before the run ends
NOTHING_SENT = {"client error", *SUPERLINK_ERRORS.values()}  # reasons of clients that have sent no result
LOOK_EVERY_S = 10.0  # for nodes, while too few are online

LOG = logging.getLogger("dragfl")
T = TypeVar("T")
MakeMessage = Callable[[Order, int, float, Payload], Message]


@dataclass(frozen=True)
class Asked:
    """A message that waits for its reply."""

    client: int
    member: Member
    order: Order


class FlowerBackend:
    """Implements `engine.backends.Backend` on a grid."""

    reuses_memory: ClassVar[bool] = False

    def __init__(
        self,
        exchange: Exchange,
        worker: Worker,
        store: Accepted,
        settings: Flower,
        folder: Path | None = None,
        zero_lost: bool = False,
    ) -> None:
        """`folder`: the run directory; its files are read at the first round. `zero_lost`: a client whose state is
        lost begins from zeros."""
        self._exchange, self._worker, self._local, self._store = exchange, worker, LocalBackend(worker), store
        self._settings, self._folder, self._zero_lost = settings, folder, zero_lost
        self.refusals = Refusals()
        self._round = 0
        self._online: dict[int, Member] = {}
        self._missing: dict[int, str] = {}
        self._counts: dict[str, int] = {}
        self._failing: set[int] | None = set()  # rounds in which every client failed; None after a usable reply
        self._late: dict[str, tuple[Member, int]] = {}  # (member, round) of messages without a reply at the deadline

    def train(self, tasks: Iterable[TrainTask]) -> Iterator[ClientResults]:
        for results in self._ask(list(tasks), train_message, self._read_update):
            if results:
                yield concat(results)

    def fold(self, tasks: Iterable[TrainTask], plan: Plan) -> Iterator[BlockResult]:
        return (fold(self._worker.aggregate, plan, results) for results in self.train(tasks))

    def gradients(self, tasks: Iterable[TrainTask]) -> Iterator[Updates]:
        for rows in self._ask(list(tasks), gradient_message, self._read_gradient):
            if rows:
                yield Updates.concat(rows)

    def train_root(self, w: Tensor, context: RoundContext, buffers: Tensor | None = None) -> Tensor:
        return self._local.train_root(w, context, buffers)

    def train_directions(self, w: Tensor, context: RoundContext, buffers: Tensor | None = None) -> Tensor:
        return self._local.train_directions(w, context, buffers)

    def scores(self, w: Tensor, buffers: Tensor | None = None) -> list[Score]:
        return self._local.scores(w, buffers)

    def missing(self) -> Mapping[int, str]:
        return dict(self._missing)

    def describe(self, record: RoundRecord) -> RoundRecord:
        """The record with the names of the nodes and the numbers of refused, failed and late replies."""
        clients = {**record.clients, "node": [self._nodes.roster.name(m) for m in record.clients["client"]]}
        if record.round != self._round:  # no client was asked
            return replace(record, clients={name: column for name, column in clients.items() if name != "reason"})
        return replace(record, metrics={**record.metrics, **self._counts}, clients=clients)

    def close(self) -> None:
        pass

    @cached_property
    def _nodes(self) -> Nodes:
        roster = Roster(self._worker.info.clients, None if self._folder is None else self._folder / NODES)
        return Nodes(self._exchange, roster, self._run, self._settings, self.refusals)

    @cached_property
    def _run(self) -> str:
        """The id of the run, which names the folders of the clients' states."""
        return os.urandom(8).hex() if self._folder is None else str(load_run(self._folder).info["id"])

    def _ask(
        self, tasks: Sequence[TrainTask], make: MakeMessage, read: Callable[[Message, Asked], T]
    ) -> Iterator[list[T]]:
        """Ask every client of all blocks; for each block what was read of its replies, in the order of its clients."""
        if not tasks:
            return
        self._begin(tasks)
        until = self._exchange.clock() + self._settings.deadline
        for task, asked in zip(tasks, self._send(tasks, make, until), strict=True):
            found: dict[int, T] = {}
            waiting = dict(asked)
            for id, reply in self._exchange.replies(asked, until):
                if id not in asked:
                    self._refuse(Refused("unknown node", f"a reply to message {id!r}"), "unknown")
                elif waiting.pop(id, None) is None:
                    self._refuse(Refused("doubled", f"round {self._round}"), asked[id].member.name)
                else:
                    self._take(asked[id], reply, read, found)
            for id, late in waiting.items():
                self._miss(late.member, "no reply", f"within {self._settings.deadline:g} s")
                self._late[id] = late.member, self._round
            yield [found[m] for m in task.clients if m in found]
        self._check_failing({m for task in tasks for m in task.clients})

    def _send(self, tasks: Sequence[TrainTask], make: MakeMessage, until: float) -> list[dict[str, Asked]]:
        """Send one message to each client that is online; for each block the messages by id."""
        cohort = [(i, m) for i, task in enumerate(tasks) for m in task.clients]
        asked: list[tuple[int, Asked]] = []
        for i, m in cohort:
            if m in self._online:
                asked.append((i, Asked(m, self._online[m], self._order(tasks[i], m))))
            elif m in (members := self._nodes.roster.members):
                self._miss(members[m], "offline", "at the start of the round")
            else:
                self._missing[m] = "offline"
        ttl = self._settings.deadline + GRACE_S + len(asked) * tasks[0].w.nbytes / PULL_BYTES_PER_S
        payload = payload_of(tasks[0])  # once for all: Flower then sends each array to SuperLink once
        ids = self._exchange.push([make(a.order, a.member.node, ttl, payload) for _, a in asked], until)
        sent: list[dict[str, Asked]] = [{} for _ in tasks]
        for (i, a), id in zip(asked, ids, strict=True):
            if id is None:
                self._miss(a.member, "offline", "its node has left")
            else:
                sent[i][id] = a
        return sent

    def _order(self, task: TrainTask, client: int) -> Order:
        one = replace(task, clients=(client,), states=({},), attackers=task.attackers & {client})
        accepted, durable = self._store.accepted[client], self._store.durable[client]
        classes = self._worker.dataset.classes
        return Order(self._run, accepted, durable, secrets.token_hex(16), self._zero_lost, one, classes)

    def _take(
        self, asked: Asked, reply: Message | Refused, read: Callable[[Message, Asked], T], found: dict[int, T]
    ) -> None:
        """Read a reply, or count why it is left out."""
        try:
            found[asked.client] = read_from(reply, asked.member.node, lambda message: read(message, asked))
            self._missing.pop(asked.client, None)
            self._failing = None
        except Refused as refused:
            if refused.reason in NOTHING_SENT:
                self._miss(asked.member, refused.reason, refused.detail)
            else:
                self._missing[asked.client] = refused.reason
                self._refuse(refused, asked.member.name)

    def _read_update(self, reply: Message, asked: Asked) -> ClientResults:
        info, sends = self._worker.info, self._worker.local.sends
        results, lost = read_update(reply, asked.order, sends, info.dim, self._settings.max_norm)
        if lost:
            self._store.lose(asked.client)
        return results

    def _read_gradient(self, reply: Message, asked: Asked) -> Updates:
        return read_gradient(reply, asked.order, self._worker.info.dim)

    def _miss(self, member: Member, reason: str, detail: str) -> None:
        """Count a client without a reply."""
        self._missing[member.client] = reason
        self.refusals.add(member.name, reason, detail)
        if reason == "client error":
            self._count("errors")

    def _refuse(self, refused: Refused, name: str) -> None:
        """Count a reply that cannot be used."""
        self.refusals.add(name, refused.reason, refused.detail)
        self._count("refused")

    def _count(self, name: str) -> None:
        self._counts[name] = self._counts.get(name, 0) + 1

    def _check_failing(self, asked: set[int]) -> None:
        """Raise where no client has ever worked: the nodes are set up wrong, and more rounds would not help."""
        if self._failing is None or any(self._missing.get(m) != "client error" for m in asked):
            return
        self._failing.add(self._round)
        if len(self._failing) >= FAILING_ROUNDS:
            raise DragflError(
                f"every client has failed in {FAILING_ROUNDS} rounds, the last one: {self.refusals.last}; fix the "
                "nodes, then start the app again with the same run-dir"
            )

    def _begin(self, tasks: Sequence[TrainTask]) -> None:
        """At the first exchange of a round: clear the counts, look for late replies and for nodes."""
        round = tasks[0].context.t + 1
        if round == self._round:
            return
        self._round, self._missing, self._counts = round, {}, {}
        for id, reply in self._exchange.replies(self._late, self._exchange.clock()):
            member, asked_in = self._late.pop(id, (None, 0))
            if member is not None and isinstance(reply, Message) and reply.has_content():
                self.refusals.add(member.name, "stale", f"the reply of round {asked_in} after its deadline")
                self._count("late")
        cohort = {m for task in tasks for m in task.clients}
        enough = min(self._settings.min_replies, len(cohort))
        until = self._exchange.clock() + self._settings.deadline
        self._online = self._nodes.find(round)
        while len(cohort & self._online.keys()) < enough and self._exchange.clock() < until:
            LOG.warning("round %d: %d of %d clients are connected; waiting", round, len(self._online), len(cohort))
            self._exchange.sleep(LOOK_EVERY_S)
            self._online = self._nodes.find(round)
