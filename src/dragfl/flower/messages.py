"""dragfl's own messages: orders to clients and their replies, written and checked on both sides.

| message | content |
|---|---|
| train, query.gradient | `model`: w, broadcast; `order`: client, round, accepted, nonce; `attack` for an attacker |
| reply to train | `update`: delta and the extras; `metrics`: num-examples, steps, loss; `reply`: nonce, round |
| reply to query.gradient | `update`: gradient; `metrics`: num-examples; `reply`: nonce, round |

A reply without metrics counts as one sample and one step with an unknown loss. A loss may be NaN or infinite, as in the
simulator: it is only logged. Everything else that is not exactly as declared raises `Refused`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
import torch
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, MessageType, MetricRecord, RecordDict
from numpy.typing import NDArray
from torch import Tensor

from dragfl.engine.client import BUFFERS, ClientResults, TrainTask
from dragfl.engine.client_store.layout import Layout
from dragfl.errors import SpecError
from dragfl.flower.client_states import check_run
from dragfl.flower.hello import ORDER, REPLY, Hello, hello_message, hello_reply, read_hello, read_reply
from dragfl.flower.records import (
    FLOATS,
    INTEGERS,
    Refused,
    check_finite,
    check_keys,
    one_array_record,
    read_array,
    read_number,
)
from dragfl.types import RoundContext, State, Updates

__all__ = [
    "Hello",
    "Order",
    "Payload",
    "classes_of",
    "gradient_message",
    "gradient_reply",
    "hello_message",
    "hello_reply",
    "lost_reply",
    "payload_of",
    "read_gradient",
    "read_hello",
    "read_order",
    "read_update",
    "train_message",
    "update_reply",
]

MODEL, ATTACK, UPDATE, METRICS = "model", "attack", "update", "metrics"  # names of records
W, SENT, EXTRA = "w", "broadcast.", "extra."  # names and prefixes of arrays
MOST = 10**9  # samples, steps and rounds
MAX_SEED = 1000  # digits
FLOAT32 = (np.dtype("float32"),)


@dataclass(frozen=True)
class Order:
    """What one client is asked to compute. Rounds count from 1."""

    run: str  # the id of the run, in hexadecimal digits
    accepted: int  # the round of the client's last result that the server has committed; 0: none
    durable: int  # the same, as of the server's last checkpoint
    nonce: str
    zero_lost: bool  # start from zeros where the state of `accepted` is lost
    task: TrainTask  # of one client, without its state
    classes: int | None = None  # of the server's dataset; a node with data of its own may not have all of them

    @property
    def client(self) -> int:
        return self.task.clients[0]

    @property
    def round(self) -> int:
        return self.task.context.t + 1


@dataclass(frozen=True)
class Payload:
    """The arrays that the messages of a round share. Flower uploads each of them once if they are built once."""

    model: ArrayRecord
    attack: ArrayRecord  # the tensors of the attack's state; only attackers receive them
    numbers: Mapping[str, int | float]  # and its numbers


def payload_of(task: TrainTask) -> Payload:
    """The shared arrays of a task and of all others of its round."""
    vectors = {W: task.w} | {f"{SENT}{name}": value for name, value in task.broadcast.items()}
    state = task.attack_state
    values = {} if state is None else {f.name: getattr(state, f.name) for f in fields(state)}
    tensors = {name: value for name, value in values.items() if isinstance(value, Tensor)}
    numbers = {f"{ATTACK}.{n}": v for n, v in values.items() if isinstance(v, int | float)}
    return Payload(_arrays(vectors), _arrays(tensors), numbers)


def train_message(order: Order, node: int, ttl: float, payload: Payload | None = None) -> Message:
    """The message that asks a node to train."""
    return _message(order, node, ttl, MessageType.TRAIN, payload)


def gradient_message(order: Order, node: int, ttl: float, payload: Payload | None = None) -> Message:
    """The message that asks a node for the full gradient of its data."""
    return _message(order, node, ttl, f"{MessageType.QUERY}.gradient", payload)


def _message(order: Order, node: int, ttl: float, kind: str, payload: Payload | None) -> Message:
    payload, context = payload_of(order.task) if payload is None else payload, order.task.context
    attacker = order.client in order.task.attackers
    config: dict[str, Any] = {
        "run": order.run,
        "accepted": order.accepted,
        "durable": order.durable,
        "nonce": order.nonce,
        "zero_lost": order.zero_lost,
        "client": order.client,
        "attacker": attacker,
        "t": context.t,
        "lr": float(context.lr),
        "momentum": float(context.momentum),
        "seed": str(context.seed),  # may have more than 64 bits
    } | ({} if order.classes is None else {"classes": order.classes})
    config |= payload.numbers if attacker else {}
    content = RecordDict({MODEL: payload.model, ORDER: ConfigRecord(config)})
    if attacker and len(payload.attack):
        content[ATTACK] = payload.attack
    return Message(content, node, kind, ttl=ttl, group_id=str(order.round))


def read_order(message: Message, *, dim: int, buffers: int, clients: int, attack_state: State = None) -> Order:
    """The checked order of a message, for a model of `dim` parameters and `buffers` buffers among `clients` clients.

    `attack_state`: the state of the attack before the first round, where the spec has an attack.
    """
    try:
        model, config = message.content.array_records[MODEL], message.content.config_records[ORDER]
        task = _read_task(message.content, model, config, dim, buffers, attack_state)
        order = Order(
            check_run(config["run"]),
            _whole(config, "accepted"),
            _whole(config, "durable"),
            str(config["nonce"]),
            config["zero_lost"] is True,
            task,
            classes_of(message),
        )
    except KeyError as error:
        raise _unfit(f"it has no {error}") from None
    except (Refused, TypeError, ValueError) as error:
        raise _unfit(str(error)) from None
    if order.client >= clients:
        raise _unfit(f"client {order.client} of {clients}")
    if not order.durable <= order.accepted < order.round:
        raise _unfit(f"round {order.round} after durable {order.durable} and accepted {order.accepted}")
    return order


def classes_of(message: Message) -> int | None:
    """The number of classes that an order names; it is needed before the model is built."""
    config: Mapping[str, Any] = message.content.config_records.get(ORDER, {})
    return _whole(config, "classes") if "classes" in config else None


def _unfit(problem: str) -> SpecError:
    return SpecError(f"order: {problem}; server and node must have the same app, version of dragfl and model")


def _read_task(
    content: RecordDict, model: ArrayRecord, config: ConfigRecord, dim: int, buffers: int, attack_state: State
) -> TrainTask:
    vectors = {}
    for name, array in model.items():
        number = name.startswith(SENT) and tuple(array.shape) == ()
        shape = () if number else (buffers if name == f"{SENT}{BUFFERS}" else dim,)
        values = read_array(array, shape, FLOAT32, name)
        check_finite(values, name)
        vectors[name] = _tensor(values)
    broadcast = {name.removeprefix(SENT): value for name, value in vectors.items() if name.startswith(SENT)}
    if bool(buffers) != (BUFFERS in broadcast):
        raise ValueError(f"{buffers} buffers in the model, broadcast {sorted(broadcast)}")
    client, attacker = _whole(config, "client"), config["attacker"] is True
    lr, momentum = (read_number(config, name, 0.0, 1e30) for name in ("lr", "momentum"))
    context = RoundContext(_whole(config, "t"), lr, int(str(config["seed"])[:MAX_SEED]), momentum)
    state = _read_attack_state(content, config, attack_state) if attacker else None
    return TrainTask((client,), vectors[W], broadcast, context, ({},), frozenset({client} if attacker else ()), state)


def _read_attack_state(content: RecordDict, config: ConfigRecord, start: State) -> State:
    if start is None:
        raise ValueError("this client is an attacker and the spec has no attack")
    arrays: Mapping[str, Array] = content.array_records.get(ATTACK, {})
    stored: dict[str, Any] = {f.name: config.get(f"{ATTACK}.{f.name}") for f in fields(start)}
    for name in stored.keys() & arrays.keys():
        stored[name] = _tensor(read_array(arrays[name], tuple(arrays[name].shape), FLOATS + INTEGERS, name))
    return replace(start, **stored)


def update_reply(message: Message, order: Order, results: ClientResults, from_zeros: bool = False) -> Message:
    """The reply to a train message. `from_zeros`: the client's state was lost."""
    updates = results.updates
    arrays = {"delta": updates.delta[0]} | {f"{EXTRA}{name}": value[0] for name, value in updates.extra.items()}
    metrics = MetricRecord({"num-examples": _number(updates.weight), "steps": results.steps[0]})
    metrics["loss"] = float(results.loss[0])
    return _reply(message, order, {UPDATE: _arrays(arrays), METRICS: metrics}, from_zeros=from_zeros)


def gradient_reply(message: Message, order: Order, gradient: Updates) -> Message:
    """The reply to a gradient message."""
    arrays, metrics = _arrays({"gradient": gradient.delta[0]}), MetricRecord({"num-examples": _number(gradient.weight)})
    return _reply(message, order, {UPDATE: arrays, METRICS: metrics})


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
        raise Refused("state lost", f"of round {order.accepted}")
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
        found[name] = _tensor(values).unsqueeze(0)
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


def _whole(config: Mapping[str, Any], name: str) -> int:
    """A number of an order that counts something."""
    value = config[name]
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= MOST:
        raise ValueError(f"{name} is {value!r:.80}")
    return value


def _number(weight: Tensor) -> int | float:
    value = float(weight)
    return int(value) if value.is_integer() else value


def _arrays(tensors: Mapping[str, Tensor]) -> ArrayRecord:
    return ArrayRecord({name: Array(value.detach().cpu().contiguous().numpy()) for name, value in tensors.items()})


def _tensor(values: NDArray[Any]) -> Tensor:
    """A copy in memory that torch has allocated: its alignment can decide the order of sums."""
    return torch.tensor(values)
