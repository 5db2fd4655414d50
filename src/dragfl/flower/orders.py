"""Orders: what the server asks one client to compute, and how the client reads it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
import torch
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, MessageType, RecordDict
from numpy.typing import NDArray
from torch import Tensor

from dragfl.engine.client import BUFFERS, TrainTask
from dragfl.errors import SpecError
from dragfl.flower.client_states import check_run
from dragfl.flower.hello import ORDER
from dragfl.flower.records import FLOATS, INTEGERS, Refused, check_finite, read_array, read_number
from dragfl.types import RoundContext, State

MODEL, ATTACK = "model", "attack"  # names of records
W, SENT = "w", "broadcast."  # name and prefix of arrays
MOST = 10**9  # clients and rounds
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
    return Payload(to_arrays(vectors), to_arrays(tensors), numbers)


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
    return SpecError(
        f"order: {problem}; server and node must have the same app, version of dragfl and model, and "
        "their data inputs of one shape and the same classes"
    )


def _read_task(
    content: RecordDict, model: ArrayRecord, config: ConfigRecord, dim: int, buffers: int, attack_state: State
) -> TrainTask:
    vectors = {}
    for name, array in model.items():
        number = name.startswith(SENT) and tuple(array.shape) == ()
        shape = () if number else (buffers if name == f"{SENT}{BUFFERS}" else dim,)
        values = read_array(array, shape, FLOAT32, name)
        check_finite(values, name)
        vectors[name] = to_tensor(values)
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
        stored[name] = to_tensor(read_array(arrays[name], tuple(arrays[name].shape), FLOATS + INTEGERS, name))
    return replace(start, **stored)


def _whole(config: Mapping[str, Any], name: str) -> int:
    """A number of an order that counts something."""
    value = config[name]
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= MOST:
        raise ValueError(f"{name} is {value!r:.80}")
    return value


def to_arrays(tensors: Mapping[str, Tensor]) -> ArrayRecord:
    return ArrayRecord({name: Array(value.detach().cpu().contiguous().numpy()) for name, value in tensors.items()})


def to_tensor(values: NDArray[Any]) -> Tensor:
    """A copy in memory that torch has allocated: its alignment can decide the order of sums."""
    return torch.tensor(values)
