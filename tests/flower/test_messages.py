"""dragfl's messages: what is sent arrives with the same bits, and everything else is refused with a reason."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
import pytest
import torch
from flwr.app import Array, ArrayRecord, ConfigRecord, Error, Message, MetricRecord, RecordDict

import dragfl
from dragfl.engine.client import ClientResults, TrainTask
from dragfl.engine.client_store.layout import Layout
from dragfl.errors import SpecError
from dragfl.flower.messages import (
    Hello,
    Order,
    classes_of,
    gradient_message,
    gradient_reply,
    hello_message,
    hello_reply,
    lost_reply,
    payload_of,
    read_gradient,
    read_hello,
    read_order,
    read_update,
    train_message,
    update_reply,
)
from dragfl.flower.records import Refused
from dragfl.types import RoundContext, Updates
from tests.flower.local_grid import FIRST_ID, LocalGrid, over_the_wire, set_identity

DIM = 4
SENDS = Layout({"change": (DIM,), "size": ()})
set_identity()


@dataclass(frozen=True)
class AttackState:
    last: torch.Tensor | None = None
    count: int = 0
    scale: float | None = None


def draw(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(sum(shape)))


def make_order(**changes: Any) -> Order:
    task = {
        "clients": (2,),
        "w": draw(DIM),
        "broadcast": {"c": -draw(DIM), "size": torch.tensor(3.0)},
        "context": RoundContext(4, 0.1, 2**80, 0.9),
        "states": ({},),
    }
    task |= {name: changes.pop(name) for name in list(changes) if name in [f.name for f in fields(TrainTask)]}
    order = {"run": "00beef", "accepted": 3, "durable": 2, "nonce": "n1", "zero_lost": False}
    return Order(**{**order, **changes}, task=TrainTask(**task))  # type: ignore[arg-type]


def received(order: Order, make: Callable[..., Message] = train_message) -> Message:
    return over_the_wire(make(order, FIRST_ID, 60.0))


def read(message: Message, **changes: Any) -> Order:
    return read_order(message, **{"dim": DIM, "buffers": 0, "clients": 3, **changes})


def results(**changes: Any) -> ClientResults:
    updates = {
        "delta": draw(1, DIM),
        "weight": torch.tensor([5.0], dtype=torch.float64),
        "client": torch.tensor([2]),
        "extra": {"change": draw(1, DIM), "size": torch.tensor([7.0])},
        "made": torch.tensor([3]),
    }
    return ClientResults(Updates(**{**updates, **changes}), (0.25,), (3,), ({},))  # type: ignore[arg-type]


def a_reply(order: Order | None = None, **changes: Any) -> Message:
    order = order or make_order()
    return over_the_wire(update_reply(received(order), order, results(**changes)))


def read_reply(reply: Message, order: Order | None = None, max_norm: float | None = None) -> tuple[ClientResults, bool]:
    return read_update(reply, order or make_order(), SENDS, DIM, max_norm)


def refused(reply: Message, **arguments: Any) -> tuple[str, str]:
    with pytest.raises(Refused) as caught:
        read_reply(reply, **arguments)
    return caught.value.reason, caught.value.detail


def test_an_order_arrives_as_it_was_sent() -> None:
    sent = make_order(classes=47)
    message = received(sent)
    found = read(message)
    assert replace(found, task=None) == replace(sent, task=None)  # type: ignore[arg-type]
    assert (found.client, found.round, found.task.context) == (2, 5, sent.task.context), "also a seed of 80 bits"
    assert torch.equal(found.task.w, sent.task.w) and found.task.broadcast.keys() == {"c", "size"}
    assert torch.equal(found.task.broadcast["c"], sent.task.broadcast["c"])
    assert found.task.broadcast["size"] == 3.0 and found.task.attackers == frozenset()
    assert message.metadata.group_id == "5" and message.metadata.ttl == 60.0 and classes_of(message) == 47


def test_the_state_of_the_attack_is_sent_to_attackers_only() -> None:
    state = AttackState(draw(DIM), 7, None)
    honest = received(make_order(attackers=frozenset({1}), attack_state=state))
    assert read(honest, attack_state=AttackState()).task.attack_state is None
    assert "attack" not in honest.content and "attack.count" not in honest.content["order"]
    found = read(received(make_order(attackers=frozenset({2}), attack_state=state)), attack_state=AttackState())
    assert found.task.attackers == {2}
    assert torch.equal(found.task.attack_state.last, state.last)
    assert (found.task.attack_state.count, found.task.attack_state.scale) == (7, None)


def test_the_arrays_of_a_round_are_uploaded_once() -> None:
    """4 messages: the model, its 3 arrays and 3 pieces of data; for each node its order, its records and itself."""
    grid = LocalGrid(lambda message, context: message, [{}] * 4)
    payload = payload_of(make_order().task)
    grid.push_messages([train_message(make_order(nonce=str(i)), grid.ids[i], 9.0, payload) for i in range(4)])
    assert len(grid.objects) == 1 + 3 + 3 + 4 * 3


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"dim": DIM + 1}, r"wrong shape: w: \(4,\) instead of \(5,\)"),
        ({"buffers": 2}, "2 buffers in the model"),
        ({"clients": 2}, "client 2 of 2"),
    ],
)
def test_an_order_for_another_model_is_an_error(changes: dict[str, int], expected: str) -> None:
    with pytest.raises(SpecError, match=f"order: .*{expected}.*must have the same app"):
        read(received(make_order()), **changes)


@pytest.mark.parametrize(
    ("key", "value", "expected"),
    [
        ("accepted", 5, "round 5 after durable 2 and accepted 5"),
        ("durable", 4, "durable 4 and accepted 3"),
        ("accepted", -1, "accepted is -1"),
        ("client", True, "client is True"),
        ("t", 2.0, "t is 2.0"),
        ("run", "../x", "run id: '../x'"),
        ("lr", math.nan, "lr = nan"),
        ("seed", "x", "invalid literal"),
        ("client", None, "it has no 'client'"),
        ("attacker", True, "the spec has no attack"),
    ],
)
def test_an_order_with_a_wrong_number_is_an_error(key: str, value: Any, expected: str) -> None:
    message = received(make_order())
    config = message.content.config_records["order"]
    if value is None:
        del config[key]
    else:
        config[key] = value
    with pytest.raises(SpecError, match=expected):
        read(message)


@pytest.mark.parametrize("name", ["w", "broadcast.c"])
@pytest.mark.parametrize("values", [[1.0, math.nan, 0.0, 0.0], [1.0], [[1.0] * DIM]])
def test_an_order_with_wrong_arrays_is_an_error(name: str, values: Any) -> None:
    message = received(make_order())
    message.content.array_records["model"][name] = Array(np.array(values, np.float32))
    with pytest.raises(SpecError, match=f"order: .*{name}"):
        read(message)


def test_an_update_arrives_as_it_was_sent() -> None:
    sent = results()
    found, from_zeros = read_reply(a_reply(), max_norm=100.0)
    assert torch.equal(found.updates.delta, sent.updates.delta) and not from_zeros
    assert {name: value.tolist() for name, value in found.updates.extra.items()} == {
        name: value.tolist() for name, value in sent.updates.extra.items()
    }
    assert found.updates.weight.tolist() == [5.0] and found.updates.weight.dtype == torch.float64
    assert found.updates.client.tolist() == [2] and found.updates.steps.tolist() == [3]
    assert (found.loss, found.steps, found.states) == ((0.25,), (3,), ({},))
    assert found.updates.delta.data_ptr() % 64 == 0, "torch's own alignment: it can decide the order of sums"
    found.updates.delta.add_(1.0)  # the memory is the server's own


def change(part: str, name: str, value: Any) -> Callable[[Message], None]:
    def apply(reply: Message) -> None:
        if value is None:
            del reply.content[part][name]  # type: ignore[arg-type]
        else:
            reply.content[part][name] = value  # type: ignore[index]

    return apply


def array(*values: float, dtype: str = "float32") -> Array:
    return Array(np.array(values, dtype))


WRONG: list[tuple[str, str, Any, str]] = [  # record, key, value (None: removed), reason
    ("update", "delta", array(1, 2, 3), "wrong shape"),
    ("update", "delta", array(1), "wrong shape"),
    ("update", "delta", array(1, 2, 3, 4, dtype="float64"), "wrong dtype"),
    ("update", "delta", array(1, 2, 3, 4, dtype=">f4"), "wrong dtype"),
    ("update", "delta", array(1, 2, 3, 4, dtype="complex64"), "wrong dtype"),
    ("update", "delta", array(1, 2, 3, math.nan), "not finite"),
    ("update", "delta", array(1, 2, 3, math.inf), "not finite"),
    ("update", "delta", None, "wrong keys"),
    ("update", "extra.change", None, "wrong keys"),
    ("update", "extra.change", array(1, 2, 3, math.nan), "not finite"),
    ("update", "extra.size", array(1), "wrong shape"),
    ("update", "extra.size", Array(np.array(math.inf, np.float32)), "not finite"),
    ("update", "extra.other", array(1, 2, 3, 4), "wrong keys"),
    ("update", "delta", Array("float32", (DIM,), "numpy.ndarray", b"garbage"), "unreadable array"),
    ("metrics", "num-examples", 0, "bad weight"),
    ("metrics", "num-examples", -5, "bad weight"),
    ("metrics", "num-examples", 10**18, "bad weight"),
    ("metrics", "num-examples", 2.5, "bad weight"),
    ("metrics", "num-examples", math.nan, "bad weight"),
    ("metrics", "num-examples", [5], "bad weight"),
    ("metrics", "steps", -1, "bad metric"),
    ("metrics", "steps", 1.5, "bad metric"),
    ("metrics", "steps", math.inf, "bad metric"),
    ("metrics", "loss", [0.1], "bad metric"),
    ("reply", "nonce", "n2", "stale"),
    ("reply", "nonce", None, "stale"),
    ("reply", "round", 4, "stale"),
    ("reply", "round", None, "stale"),
    ("reply", "round", "5", "stale"),
    ("reply", "lost", True, "state lost"),
    ("reply", "from_zeros", True, "state lost"),
]


@pytest.mark.parametrize(("record", "key", "value", "reason"), WRONG)
def test_a_wrong_reply_is_refused_with_its_reason(record: str, key: str, value: Any, reason: str) -> None:
    reply = a_reply()
    change(record, key, value)(reply)
    assert refused(over_the_wire(reply))[0] == reason


@pytest.mark.parametrize("record", ["update", "reply"])
def test_a_reply_without_a_record_is_refused(record: str) -> None:
    reply = a_reply()
    del reply.content[record]
    assert refused(reply)[0] == "missing record"
    reply.content[record] = MetricRecord()
    assert refused(reply)[0] == "missing record"


def test_a_second_array_record_is_refused() -> None:
    reply = a_reply()
    reply.content["more"] = ArrayRecord({"delta": array(1, 2, 3, 4)})
    assert refused(reply)[0] == "missing record"


def test_an_error_of_the_client_is_refused() -> None:
    reply = Message(Error(2, "it raised"), reply_to=received(make_order()))
    assert refused(reply) == ("client error", "error 2: it raised")


def test_a_claimed_shape_is_not_believed() -> None:
    """The header inside the data says (1,), the claim is (4,); numpy would read one value and broadcast it."""
    reply, lie = a_reply(), array(1)
    lie.shape = (DIM,)
    reply.content.array_records["update"]["delta"] = lie
    assert refused(over_the_wire(reply))[0] == "wrong shape"


def test_the_norm_of_an_update_is_limited() -> None:
    reply = a_reply(delta=torch.tensor([[3.0, 4.0, 0.0, 0.0]]))
    assert read_reply(reply, max_norm=5.0)[0].updates.norm.item() == 5.0
    assert refused(reply, max_norm=4.9) == ("norm above max_norm", "5 is above 4.9")


@pytest.mark.parametrize("loss", [math.nan, math.inf, 3])
def test_any_loss_that_is_a_number_is_accepted(loss: float) -> None:
    """It is only logged; a client whose loss is infinite may still have a finite update, as in the simulator."""
    reply = a_reply()
    reply.content.metric_records["metrics"]["loss"] = loss
    assert repr(read_reply(over_the_wire(reply))[0].loss) == repr((float(loss),))


def test_a_reply_without_metrics_is_one_sample_and_one_step() -> None:
    reply = a_reply()
    del reply.content["metrics"]
    found = read_reply(over_the_wire(reply))[0]
    assert found.updates.weight.tolist() == [1.0] and found.steps == (1,) and math.isnan(found.loss[0])


def test_more_metrics_and_another_order_of_keys_are_accepted() -> None:
    reply = a_reply()
    reply.content.metric_records["metrics"]["accuracy"] = 0.5
    reply.content["notes"] = ConfigRecord({"hello": "world"})
    arrays = dict(reversed(reply.content.array_records["update"].items()))
    reply.content["update"] = ArrayRecord(arrays)
    assert torch.equal(read_reply(over_the_wire(reply))[0].updates.delta, results().updates.delta)


def test_a_lost_state_is_refused_or_reported_as_zeros() -> None:
    order = make_order()
    reason, detail = refused(over_the_wire(lost_reply(received(order), order)))
    assert (reason, detail[:25]) == ("state lost", "of round 3; restore the s")
    order = make_order(zero_lost=True)
    reply = over_the_wire(update_reply(received(order), order, results(), from_zeros=True))
    assert read_reply(reply, order)[1]


def test_a_weight_that_is_no_number_of_samples_is_refused_by_the_server() -> None:
    """An attack may forge its weight; the client sends it as it is."""
    for weight in (0.5, -3.0, 1e300, math.nan):
        assert refused(a_reply(weight=torch.tensor([weight], dtype=torch.float64)))[0] == "bad weight"


def test_a_gradient_arrives_as_it_was_sent_or_is_refused() -> None:
    order = make_order()
    message = received(order, gradient_message)
    assert message.metadata.message_type == "query.gradient"
    sent = Updates(draw(1, DIM), torch.tensor([9.0], dtype=torch.float64), torch.tensor([2]))
    reply = over_the_wire(gradient_reply(message, read(message), sent))
    found = read_gradient(reply, order, DIM)
    assert torch.equal(found.delta, sent.delta) and found.weight.tolist() == [9.0] and found.client.tolist() == [2]
    for problem, reason in ((array(1, 2), "wrong shape"), (array(1, 2, 3, math.inf), "not finite")):
        reply.content.array_records["update"]["gradient"] = problem
        with pytest.raises(Refused, match=reason):
            read_gradient(reply, order, DIM)
    with pytest.raises(Refused, match="stale"):
        read_gradient(reply, make_order(nonce="n2"), DIM)
    with pytest.raises(Refused, match="wrong keys"):
        read_gradient(a_reply(), order, DIM)


def test_hello_gives_partition_and_version() -> None:
    message = over_the_wire(hello_message("beef", "n1", FIRST_ID, 60.0))
    assert message.metadata.message_type == "query.hello"
    reply = over_the_wire(hello_reply(message, {"partition-id": 3}))
    assert read_hello(reply, "n1") == Hello(3, dragfl.__version__)
    assert read_hello(hello_reply(message, {}), "n1").partition is None
    with pytest.raises(Refused, match="stale"):
        read_hello(reply, "n2")
    for key, value in (
        ("partition", -1),
        ("partition", True),
        ("partition", "0"),
        ("version", 1),
        ("version", "v" * 99),
        ("version", "1\x1b[2J"),
    ):
        wrong = over_the_wire(hello_reply(message, {"partition-id": 3}))
        wrong.content.config_records["reply"][key] = value
        with pytest.raises(Refused, match="bad metric"):
            read_hello(wrong, "n1")
    with pytest.raises(Refused, match="missing record"):
        read_hello(Message(RecordDict(), reply_to=message), "n1")
    with pytest.raises(SpecError, match="partition-id = 'x'; give a whole number"):
        hello_reply(message, {"partition-id": "x"})
