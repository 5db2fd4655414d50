"""Messages and replies: polling, replies that cannot be read, a lost connection, and the request to stop."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import pairwise

import httpx
import pytest
from flwr.app import ConfigRecord, Context, Message, MessageType, RecordDict
from flwr.supercore.run import RunNotRunningException

from dragfl.errors import Interrupted
from dragfl.flower.exchange import Exchange, StopRequest, read_from
from dragfl.flower.records import Refused
from tests.flower.local_grid import LocalGrid


def echo(message: Message, context: Context) -> Message:
    return Message(message.content, reply_to=message)


class Watched(LocalGrid):
    """Notes every pull; `fail` may raise in its place."""

    def __init__(self, nodes: int) -> None:
        super().__init__(echo, [{}] * nodes)
        self.pulls: list[tuple[float, list[str]]] = []
        self.fail: Callable[[str], None] = lambda id: None

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        ids = list(message_ids)
        self.pulls.append((self.time(), ids))
        for id in ids:
            self.fail(id)
        return super().pull_messages(ids)


def exchange_on(grid: LocalGrid, stop: StopRequest | None = None) -> Exchange:
    return Exchange(grid, stop, grid.time, grid.sleep)


def messages(grid: LocalGrid) -> list[Message]:
    content = RecordDict({"order": ConfigRecord({"n": 1})})
    return [Message(content, node, MessageType.TRAIN, ttl=1000.0, group_id="1") for node in grid.ids]


def push(grid: LocalGrid) -> list[str]:
    ids = exchange_on(grid).push(messages(grid), 0.0)
    return [id for id in ids if id is not None]


def test_replies_are_pulled_one_at_a_time_and_come_as_they_arrive() -> None:
    grid = Watched(3)
    grid.delay = lambda node, round: 5.0 - node
    ids = push(grid)
    assert [id for id, _ in exchange_on(grid).replies(ids, 60.0)] == ids[::-1]
    assert all(len(pulled) == 1 for _, pulled in grid.pulls)


def test_looks_for_replies_are_a_tenth_of_a_second_apart_at_first_and_a_second_later() -> None:
    grid = Watched(1)
    grid.drop = lambda node, round: True
    assert not list(exchange_on(grid).replies(push(grid), 20.0))
    times = [time for time, _ in grid.pulls]
    pauses = [b - a for a, b in pairwise(times)]
    assert pauses[0] == pytest.approx(0.15) and max(pauses) == pytest.approx(1.0)
    assert times[-1] == 20.0, "one last look at the deadline"


def test_after_the_deadline_there_is_one_look_for_what_has_come_before() -> None:
    grid = Watched(2)
    grid.drop = lambda node, round: node == 1
    ids = push(grid)
    grid.sleep(100.0)
    assert [id for id, _ in exchange_on(grid).replies(ids, 60.0)] == ids[:1]
    assert len(grid.pulls) == 2


def test_a_reply_that_flwr_cannot_read_costs_no_other() -> None:
    grid = Watched(3)
    ids = push(grid)

    def fail(id: str) -> None:
        if id == ids[1]:
            raise KeyError("no such class")

    grid.fail = fail
    found = dict(exchange_on(grid).replies(ids, 60.0))
    refused = found[ids[1]]
    assert isinstance(refused, Refused) and refused.reason == "unreadable array" and "no such class" in refused.detail
    assert isinstance(found[ids[0]], Message) and isinstance(found[ids[2]], Message)


def test_a_message_that_superlink_cannot_deliver_now_is_tried_again() -> None:
    grid = Watched(1)
    response = httpx.Response(500, request=httpx.Request("POST", "http://127.0.0.1"))

    def fail(id: str) -> None:
        if len(grid.pulls) < 3:
            response.raise_for_status()

    grid.fail = fail
    assert len(list(exchange_on(grid).replies(push(grid), 60.0))) == 1


def test_a_lost_connection_is_waited_for_until_the_deadline() -> None:
    grid = Watched(1)
    ids = push(grid)

    def fail(id: str) -> None:
        if grid.time() < back:
            raise httpx.ConnectError("connection refused")

    grid.fail, back = fail, 30.0
    assert len(list(exchange_on(grid).replies(ids, 60.0))) == 1
    back = 1000.0
    with pytest.raises(Interrupted, match=r"no connection to SuperLink \(connection refused\); start the app again"):
        list(exchange_on(grid).replies(push(grid), 90.0))


@pytest.mark.parametrize("error", [httpx.ReadTimeout("slow"), ConnectionResetError("reset")], ids=repr)
def test_nodes_and_messages_wait_for_the_connection(error: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    grid = Watched(2)
    exchange = exchange_on(grid)
    for name in ("get_nodes", "push_messages"):
        call, calls = getattr(grid, name), 0

        def late(*arguments: object, call: Callable[..., object] = call) -> object:
            nonlocal calls
            calls += 1
            if calls < 4:
                raise error
            return call(*arguments)

        monkeypatch.setattr(grid, name, late)
    assert len(exchange.nodes(grid.time() + 60.0)) == 2
    calls = 0
    assert None not in exchange.push(messages(grid), grid.time() + 60.0)
    calls = -1000
    with pytest.raises(Interrupted, match="no connection to SuperLink"):
        exchange.nodes(grid.time() + 5.0)


def test_a_run_that_superlink_has_ended_is_interrupted() -> None:
    grid = Watched(1)
    ids = push(grid)

    def fail(id: str) -> None:
        raise RunNotRunningException

    grid.fail = fail
    with pytest.raises(Interrupted, match="SuperLink has ended this run"):
        list(exchange_on(grid).replies(ids, 60.0))


def test_a_message_to_a_node_that_has_left_has_no_id() -> None:
    grid = Watched(2)
    sent = messages(grid)
    del grid.ids[0]
    found = exchange_on(grid).push(sent, 0.0)
    assert found[0] is None and found[1]
    assert exchange_on(grid).push([], 0.0) == []


class TestStopRequest:
    def test_it_ends_a_wait_at_once(self) -> None:
        grid, stop = Watched(1), StopRequest()
        grid.drop = lambda node, round: True
        ids = push(grid)

        def fail(id: str) -> None:
            if len(grid.pulls) == 3:
                stop.ask()

        grid.fail = fail
        with pytest.raises(Interrupted, match="stopped during a round"):
            list(exchange_on(grid, stop).replies(ids, 60.0))
        assert len(grid.pulls) == 3

    def test_outside_a_wait_it_is_noted_and_ends_the_next_one(self) -> None:
        grid, stop = Watched(1), StopRequest()
        stop.ask()
        assert stop.asked
        with pytest.raises(Interrupted):
            exchange_on(grid, stop).nodes(60.0)


class TestReadFrom:
    def test_an_error_of_flower_says_whose_it_is(self) -> None:
        grid = Watched(2)
        grid.apps[0] = lambda message, context: 1 / 0  # type: ignore[assignment,return-value]
        ids = push(grid)
        grid.offline.add(1)
        found = dict(exchange_on(grid).replies(ids, 60.0))
        for id, reason, detail in ((ids[0], "client error", "division by zero"), (ids[1], "offline", "error 5")):
            with pytest.raises(Refused, match=detail) as refused:
                read_from(found[id], grid.ids[0], lambda message: message)
            assert refused.value.reason == reason

    def test_the_reply_of_another_node_is_refused(self) -> None:
        grid = Watched(2)
        reply = dict(exchange_on(grid).replies(push(grid)[:1], 60.0)).popitem()[1]
        assert read_from(reply, grid.ids[0], lambda message: 7) == 7
        with pytest.raises(Refused, match="unknown node"):
            read_from(reply, grid.ids[1], lambda message: 7)

    def test_whatever_reading_raises_is_a_refusal(self) -> None:
        grid = Watched(1)
        reply = dict(exchange_on(grid).replies(push(grid), 60.0)).popitem()[1]
        with pytest.raises(Refused, match="unreadable array: ZeroDivisionError"):
            read_from(reply, grid.ids[0], lambda message: 1 / 0)
