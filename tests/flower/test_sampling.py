"""Nodes as numbered clients, and the draw of a round."""

from __future__ import annotations

import pytest

from dragfl.flower import sampling
from dragfl.flower.sampling import Nodes
from tests.flower.local_grid import LocalGrid


def grid_of(count: int) -> LocalGrid:
    return LocalGrid(lambda message, context: message, [{} for _ in range(count)])


def test_the_draw_is_the_simulators_where_all_nodes_are_connected() -> None:
    from dragfl.rng import rng

    nodes, grid = Nodes(), grid_of(10)
    drawn = nodes.sample(grid, lambda n: n // 2, 1, 7, "sample", 3)
    expected = sorted(rng(7, "sample", 3).choice(10, 5, replace=False).tolist())
    assert [nodes.clients[node] for node in drawn] == expected


def test_it_waits_for_nodes(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    grid, nodes = grid_of(4), Nodes()
    grid.offline = {0, 1, 2}
    monkeypatch.setattr(sampling.time, "sleep", lambda seconds: grid.offline.pop())
    drawn = nodes.sample(grid, lambda n: n, 4, 0, "sample", 0)
    assert len(drawn) == 4 and "waiting for nodes: 1 connected, 4 required" in caplog.text


def test_a_node_that_left_keeps_its_number() -> None:
    grid, nodes = grid_of(3), Nodes()
    assert [nodes.clients[node] for node in nodes.online(grid)] == [0, 1, 2]
    grid.offline = {1}
    assert [nodes.clients[node] for node in nodes.online(grid)] == [0, 2]
    grid.offline = set()
    assert nodes.online(grid) == grid.ids
