"""Greeting of nodes: numbers do not depend on who answers first, and nobody who comes late holds up a round."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from flwr.app import Context, Message

from dragfl.config.tables import Flower
from dragfl.errors import DragflError
from dragfl.flower.exchange import Exchange
from dragfl.flower.hello import hello_reply
from dragfl.flower.nodes import Nodes
from dragfl.flower.refusals import Refusals
from dragfl.flower.roster import Roster
from tests.flower.local_grid import LocalGrid

WAIT_S = 100.0


def answer(message: Message, context: Context) -> Message:
    return hello_reply(message, context.node_config)


def start(configs: Sequence[dict[str, Any]], clients: int | None = None, **options: Any) -> tuple[LocalGrid, Nodes]:
    settings = Flower(wait=WAIT_S, deadline=50.0, secure=options.pop("secure", True))
    grid = LocalGrid(answer, configs, **options)
    roster = Roster(clients or len(configs))
    return grid, Nodes(Exchange(grid, None, grid.time, grid.sleep), roster, "beef", settings, Refusals())


def places(grid: LocalGrid, nodes: Nodes, round: int) -> dict[int, int]:
    """client -> position of its node."""
    return {m: grid.ids.index(member.node) for m, member in nodes.find(round).items()}


def test_numbers_follow_partition_ids_then_names_not_the_order_of_arrival() -> None:
    grid, nodes = start([{}, {"partition-id": 0}, {}, {"partition-id": 3}], names=["d", "c", "b", "a"])
    grid.delay = lambda node, round: 10.0 - node
    assert places(grid, nodes, 1) == {0: 1, 1: 2, 2: 0, 3: 3}


def test_only_the_first_call_waits_and_later_nodes_come_a_round_later() -> None:
    grid, nodes = start([{"partition-id": i} for i in range(3)])
    grid.offline = {2}
    grid.delay = lambda node, round: 30.0
    assert places(grid, nodes, 1) == {0: 0, 1: 1}
    assert 30.0 <= grid.time() < 32.0
    grid.offline, before = set(), grid.time()
    assert places(grid, nodes, 2) == {0: 0, 1: 1} and grid.time() == before
    grid.sleep(30.0)
    assert places(grid, nodes, 3) == {0: 0, 1: 1, 2: 2}
    assert [sent[0] for sent in grid.sent] == [0, 1, 2], "each node is greeted once"


def test_a_node_that_never_answers_costs_one_wait() -> None:
    grid, nodes = start([{}, {}], names=["a", "b"])
    grid.drop = lambda node, round: node == 1
    assert places(grid, nodes, 1) == {0: 0} and grid.time() == pytest.approx(WAIT_S)
    assert places(grid, nodes, 2) == {0: 0} and grid.time() == pytest.approx(WAIT_S)
    grid.drop = lambda node, round: False
    grid.sleep(1000.0)  # the greeting has expired, so the node is greeted again
    assert places(grid, nodes, 3) == {0: 0}
    assert places(grid, nodes, 4) == {0: 0, 1: 1}


def test_a_node_that_fails_is_logged_and_greeted_again(caplog: pytest.LogCaptureFixture) -> None:
    grid, nodes = start([{"partition-id": "x"}, {}], names=["a", "b"])
    assert places(grid, nodes, 1) == {0: 1}
    assert "node a: left out: client error: greeting: error 2" in caplog.text
    assert places(grid, nodes, 2) == {0: 1}
    assert [sent[0] for sent in grid.sent] == [0, 1, 0]


def test_a_node_too_many_gets_no_work_until_a_number_is_free(caplog: pytest.LogCaptureFixture) -> None:
    grid, nodes = start([{}, {}, {}], clients=2, names=["a", "b", "c"])
    assert places(grid, nodes, 1) == {0: 0, 1: 1}
    assert places(grid, nodes, 2) == {0: 0, 1: 1}
    assert caplog.text.count("node c: every client has a node already") == 1
    grid.offline = {0}
    assert places(grid, nodes, 3) == {0: 2, 1: 1}


@pytest.mark.parametrize("secure", [True, False])
def test_a_restarted_node_without_authentication_gets_its_number_back(secure: bool) -> None:
    """Without a key of its own a SuperNode makes a new one at each start, and has a new id."""
    configs = [{"partition-id": i} for i in (0, 1)]
    grid, nodes = start(configs, keys=[b"first", b"second"], secure=secure)
    assert places(grid, nodes, 1) == {0: 0, 1: 1}
    grid.ids[0], grid.keys[0] = grid.ids[0] + 500, b"third"
    found = [places(grid, nodes, round) for round in (2, 3)]
    assert found[-1] == ({1: 1} if secure else {0: 0, 1: 1})


def test_where_no_node_answers_the_error_has_the_reason() -> None:
    _, nodes = start([{"partition-id": -1}, {"partition-id": -1}], names=["a", "b"])
    with pytest.raises(DragflError, match=r"none of 2 nodes has answered \(b: client error: greeting: error 2.*-1"):
        nodes.find(1)


def test_nodes_that_the_roster_does_not_know_are_an_error_with_advice() -> None:
    """All keys are new, as after writing the deployment again."""
    grid, nodes = start([{}, {}], keys=[b"a", b"b"])
    assert places(grid, nodes, 1) == {0: 0, 1: 1}
    grid.keys = [b"c", b"d"]
    later = Nodes(Exchange(grid, None, grid.time, grid.sleep), nodes.roster, "beef", Flower(), Refusals())
    with pytest.raises(DragflError, match=r"none of 2 nodes is a client of this run: .* delete nodes\.json"):
        later.find(2)


def test_two_nodes_with_one_partition_id_are_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    grid, nodes = start([{"partition-id": 1}, {"partition-id": 1}, {"partition-id": 9}], names=["a", "b", "c"])
    assert places(grid, nodes, 1) == {1: 0, 0: 1, 2: 2}
    assert "node b has partition-id 1, which is taken or too large, and is client 0" in caplog.text
    assert "node c has partition-id 9, " in caplog.text and "node a has" not in caplog.text
