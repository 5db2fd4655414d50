"""Replies: what a client sends back, and how the server checks it. Nothing in a reply is believed."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import torch
from flwr.app import ConfigRecord, Message, MetricRecord, RecordDict
from torch import Tensor

from dragfl.engine.client import ClientResults
from dragfl.engine.client_store.layout import Layout
from dragfl.flower.hello import REPLY, read_reply
from dragfl.flower.orders import FLOAT32, Order, to_arrays, to_tensor
from dragfl.flower.records import Refused, check_finite, check_keys, one_array_record, read_array, read_number
from dragfl.types import Updates

UPDATE, METRICS = "update", "metrics"  # names of records
EXTRA = "extra."  # prefix of arrays
MOST = 10**9  # samples and steps


def update_reply(message: Message, order: Order, results: ClientResults, from_zeros: bool = False) -> Message:
    """The reply to a train message. `from_zeros`: the client's state was lost."""
    updates = results.updates
    arrays = {"delta": updates.delta[0]} | {f"{EXTRA}{name}": value[0] for name, value in updates.extra.items()}
    metrics = MetricRecord({"num-examples": _number(updates.weight), "steps": results.steps[0]})
    metrics["loss"] = float(results.loss[0])
    return _reply(message, order, {UPDATE: to_arrays(arrays), METRICS: metrics}, from_zeros=from_zeros)


def gradient_reply(message: Message, order: Order, gradient: Updates) -> Message:
    """The reply to a gradient message."""
    metrics = MetricRecord({"num-examples": _number(gradient.weight)})
    return _reply(message, order, {UPDATE: to_arrays({"gradient": gradient.delta[0]}), METRICS: metrics})


def lost_reply(message: Message, order: Order) -> Message:
    """The reply of a client that cannot read its state of round `accepted`."""
    return _reply(message, order, {}, lost=True)


def _reply(message: Message, order: Order, records: Mapping[str, Any], **flags: bool) -> Message:
    config = ConfigRecord({"nonce": order.nonce, "round": order.round, **flags})
    return Message(RecordDict({**records, REPLY: config}), reply_to=message)


def read_update(
    reply: Message, order: Order, sends: Layout, dim: int, max_norm: float | None = None
) -> tuple[ClientResults, bool]:
    """(the result of one client, whether it started from zeros because its state was lost); raise `Refused` if wrong.

    `sends`: the layout of the extras. Client states stay with the clients: those of the result are empty.
    """
    config, content = _read_config(reply, order), reply.content
    from_zeros = config.get("from_zeros") is True
    if config.get("lost") is True or (from_zeros and not order.zero_lost):
        advice = 'restore the state-dir of the node, or set state.on_missing = "zero"'
        raise Refused("state lost", f"of round {order.accepted}; {advice}")
    shapes = {"delta": (dim,)} | {f"{EXTRA}{name}": tuple(shape) for name, shape in sends.shapes.items()}
    arrays, metrics = _read_vectors(content, shapes), _metrics(content)
    samples = _count(metrics, "num-examples", 1, "bad weight")
    steps, loss = _count(metrics, "steps", 0, "bad metric"), metrics.get("loss", math.nan)
    if isinstance(loss, bool) or not isinstance(loss, int | float):
        raise Refused("bad metric", f"loss = {loss!r:.80}; expected a number")
    delta = arrays.pop("delta")
    extra = {name.removeprefix(EXTRA): value for name, value in arrays.items()}
    updates = _updates(order, delta, samples, extra, steps)
    if max_norm is not None and not float(updates.norm) <= max_norm:
        raise Refused("norm above max_norm", f"{float(updates.norm):g} is above {max_norm:g}")
    return ClientResults(updates, (float(loss),), (steps,), ({},)), from_zeros


def read_gradient(reply: Message, order: Order, dim: int) -> Updates:
    """The full gradient of one client; raise `Refused` if the reply is wrong."""
    _read_config(reply, order)
    gradient = _read_vectors(reply.content, {"gradient": (dim,)})["gradient"]
    return _updates(order, gradient, _count(_metrics(reply.content), "num-examples", 1, "bad weight"))


def _updates(
    order: Order, delta: Tensor, samples: int, extra: Mapping[str, Tensor] | None = None, steps: int | None = None
) -> Updates:
    made = None if steps is None else torch.tensor([steps])
    weight = torch.tensor([float(samples)], dtype=torch.float64)
    return Updates(delta, weight, torch.tensor(order.task.clients), extra or {}, made)


def _read_config(reply: Message, order: Order) -> ConfigRecord:
    config = read_reply(reply, order.nonce)
    if (round := config.get("round")) != order.round or isinstance(round, bool):
        raise Refused("stale", f"round {round!r:.80} instead of {order.round}")
    return config


def _read_vectors(content: RecordDict, shapes: Mapping[str, tuple[int, ...]]) -> dict[str, Tensor]:
    """The arrays of a reply, each with a leading axis of one client."""
    record = one_array_record(content)
    check_keys(record, shapes)
    found = {}
    for name, shape in shapes.items():
        values = read_array(record[name], shape, FLOAT32, name)
        check_finite(values, name)
        found[name] = to_tensor(values).unsqueeze(0)
    return found


def _metrics(content: RecordDict) -> Mapping[str, Any]:
    found = content.get(METRICS)
    return found if isinstance(found, MetricRecord) else {}


def _count(metrics: Mapping[str, Any], name: str, low: int, reason: str) -> int:
    """A whole number; 1 where there is none of that name."""
    value = read_number(metrics, name, low, MOST, 1.0, reason)
    if not value.is_integer():
        raise Refused(reason, f"{name} = {value:g}; expected a whole number")
    return int(value)


def _number(weight: Tensor) -> int | float:
    """The number of samples; an attacker may send any other weight, which the server refuses."""
    value = float(weight)
    return int(value) if value.is_integer() and 0 < value <= MOST else value
