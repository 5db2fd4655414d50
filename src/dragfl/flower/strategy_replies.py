"""Replies to the messages of a round: whose they are, what is in them, and the average of their metrics."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import torch
from flwr.app import Message, Metadata, MetricRecord, RecordDict

from dragfl.engine.client import BUFFERS, ClientResults
from dragfl.flower.named_arrays import NamedArrays, Values
from dragfl.flower.records import MAX_EXAMPLES, Refused, check_finite, one_array_record, read_number, reply_content
from dragfl.flower.refusals import LOG, Refusals
from dragfl.types import Updates

INTEGERS = "integers"  # the name of the changes of integer arrays among the extras
MIN_WEIGHT, MAX_STEPS = 1e-12, 1e6
T = TypeVar("T")


@dataclass(frozen=True)
class Reply:
    """A checked reply to a training message. Its arrays are views of the bytes that Flower holds."""

    client: int
    content: RecordDict
    values: Values
    weight: float
    steps: int

    def results(self, arrays: NamedArrays, sent: Values) -> ClientResults:
        """A block of one client. It is computed each time, so that updates are not all in memory."""
        extra = {BUFFERS: arrays.vector(self.values, "statistic"), INTEGERS: arrays.changes(self.values, sent)}
        updates = Updates(
            arrays.update(self.values, sent)[None],
            torch.tensor([self.weight], dtype=torch.float64),
            torch.tensor([self.client]),
            {name: value[None] for name, value in extra.items() if len(value)},
            torch.tensor([self.steps]),
        )
        return ClientResults(updates, (float("nan"),), (self.steps,), ({},))


@dataclass(frozen=True)
class ReplyCheck:
    """What is asked of a reply to a training message."""

    arrays: NamedArrays
    sent: Values
    weight_key: str
    steps_key: str | None  # the metric with the number of local steps, where the rule needs it
    max_norm: float | None

    def __call__(self, client: int, message: Message) -> Reply:
        """Raise `Refused` unless the reply can be used."""
        content = reply_content(message)
        values = self.arrays.read(one_array_record(content))
        for entry in self.arrays.entries:
            check_finite(values[entry.name], entry.name)
        metrics = metrics_of(content)
        weight, steps = weight_of(metrics, self.weight_key), 1.0
        if self.steps_key is not None:
            steps = read_number(metrics, self.steps_key, 1, MAX_STEPS)
        reply = Reply(client, content, values, weight, int(steps))
        results = reply.results(self.arrays, self.sent)
        if not results.usable().all():  # finite, but not in float32
            raise Refused("not finite", "the update exceeds the range of float32")
        if self.max_norm is not None and (norm := float(results.updates.norm)) > self.max_norm:
            raise Refused("norm above max_norm", f"{norm:.6g} > {self.max_norm:g}")
        return reply


def metrics_of(content: RecordDict) -> dict[str, Any]:
    """All metrics of a reply; the first record that has a name wins."""
    return {name: value for record in reversed(list(content.metric_records.values())) for name, value in record.items()}


def weight_of(metrics: Mapping[str, Any], key: str) -> float:
    """The weight of a reply; one example where it has none."""
    return read_number(metrics, key, MIN_WEIGHT, MAX_EXAMPLES, default=1.0, reason="bad weight")


def check_evaluation(weight_key: str, client: int, message: Message) -> RecordDict:
    """The content of a reply to an evaluation message; raise `Refused` where it cannot be used."""
    content = reply_content(message)
    weight_of(metrics_of(content), weight_key)
    return content


@dataclass(frozen=True)
class Asked:
    """The messages of one round, and the client numbers and names of all nodes."""

    messages: tuple[Metadata, ...]  # flwr sets their message ids when it sends them
    clients: Mapping[int, int]  # node id -> client number
    names: Mapping[int, str]

    @property
    def cohort(self) -> tuple[int, ...]:
        return tuple(sorted(self.clients[m.dst_node_id] for m in self.messages))

    def usable(self, replies: Iterable[Message], check: Callable[[int, Message], T], refusals: Refusals) -> list[T]:
        """What the check makes of each usable reply, by client number; the others are counted.

        A metric that is not finite is counted too; the reply itself is used.
        """
        found = []
        for node, reply in self._first_replies(replies, refusals):
            try:
                found.append(check(self.clients[node], reply))
            except Refused as refused:
                refusals.add(self.names[node], refused.reason, refused.detail)
                continue
            except Exception as error:  # a reply must never end the run
                LOG.debug("a reply cannot be read", exc_info=True)
                refusals.add(self.names[node], "unreadable array", f"{type(error).__name__}: {error}")
                continue
            if bad := [name for name, value in metrics_of(reply.content).items() if not _finite(value)]:
                refusals.add(self.names[node], "bad metric", f"{bad[0]} is not finite")
        return found

    def _first_replies(self, replies: Iterable[Message], refusals: Refusals) -> list[tuple[int, Message]]:
        """(node, its first reply) by client number. Replies that nobody asked for, stale and doubled ones are counted.

        An error of the SuperLink comes from its own node id, so a reply is found by the message that it replies to.
        """
        by_id = {m.message_id: m.dst_node_id for m in self.messages if m.message_id}
        nodes = {m.dst_node_id for m in self.messages}
        found: dict[int, Message] = {}
        for reply in replies:
            source = reply.metadata.src_node_id
            node = by_id.get(reply.metadata.reply_to_message_id) if by_id else source
            name = self.names.get(source, str(source))
            if node is None and source in self.clients:
                refusals.add(name, "stale", "it replies to no message of this round")
            elif node not in nodes or (source != node and not reply.has_error()):
                refusals.add(name, "unknown node", "it was not asked")
            elif node in found:
                refusals.add(self.names[node], "doubled")
            else:
                found[node] = reply
        for node in sorted(nodes - found.keys(), key=self.clients.__getitem__):
            refusals.add(self.names[node], "no reply")
        return sorted(found.items(), key=lambda item: self.clients[item[0]])


def average_metrics(contents: list[RecordDict], weighted_by_key: str) -> MetricRecord:
    """The average of each metric over the replies that have it, weighted by `weighted_by_key`.

    It has the signature of Flower's `train_metrics_aggr_fn`, but replies may have different metrics. Values that are
    not finite are left out; of lists, those of the most frequent length are averaged.
    """
    columns: dict[str, dict[int | None, list[tuple[float, Sequence[float]]]]] = defaultdict(lambda: defaultdict(list))
    for content in contents:
        metrics = metrics_of(content)
        weight = weight_of(metrics, weighted_by_key)
        for name, value in metrics.items():
            if name != weighted_by_key and _finite(value):
                columns[name][len(value) if isinstance(value, list) else None].append((weight, _numbers(value)))
    averaged = MetricRecord()
    for name, by_length in columns.items():
        length, rows = max(by_length.items(), key=lambda item: len(item[1]))
        total = sum(weight for weight, _ in rows)
        means = [sum(weight / total * row[i] for weight, row in rows) for i in range(1 if length is None else length)]
        averaged[name] = means[0] if length is None else means
    return averaged


def _finite(value: Any) -> bool:
    return all(map(math.isfinite, _numbers(value)))


def _numbers(value: Any) -> Sequence[float]:
    return value if isinstance(value, list) else [value]
