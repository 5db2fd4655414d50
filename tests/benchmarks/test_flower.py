"""The benchmarks of Flower on tiny sizes. No test asserts a time."""

from __future__ import annotations

import pytest

from benchmarks import __main__ as command
from benchmarks import flower_memory, flower_rounds
from benchmarks.flower_memory import LIMIT, OURS, SERVERS, PullGrid, layers
from benchmarks.results import Comparison
from tests.flower.local_grid import set_identity


@pytest.mark.parametrize("name", SERVERS)
def test_every_server_completes_its_rounds_and_takes_every_reply(name: str) -> None:
    grid = PullGrid(3)
    pulled: list[str] = []
    real = grid.pull_messages
    grid.pull_messages = lambda ids: pulled.extend(found := list(real(ids))) or found  # type: ignore[assignment]
    SERVERS[name](grid, 3, 8_000)
    trained = [reply for reply in pulled if reply.content.array_records]  # type: ignore[attr-defined]
    assert len(trained) == 3 * flower_memory.ROUNDS


def test_the_layers_have_about_the_parameters_asked_for() -> None:
    sizes = [1 if not shape else shape[0] * (shape[1] if len(shape) > 1 else 1) for shape in layers(10**7).values()]
    assert abs(sum(sizes) - 10**7) < 1000


def test_replies_share_no_memory() -> None:
    set_identity()
    first, second = flower_memory.small((4,)), flower_memory.small((4,))
    assert first.data is not second.data and first.numpy().tolist() == [0.0] * 4


def test_the_target_is_that_of_dragfl_with_many_nodes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flower_memory, "_peak", lambda name, nodes, dim: 100.0 + nodes)
    comparison = flower_memory.measure(few_many=(10, 50))
    limited = {row.name: row.ratios["10 nodes"] for row in comparison.rows if row.limits}
    assert limited == {f"{name}, 50 nodes": 150 / 110 for name in OURS}
    assert not any(row.met["10 nodes"] for row in comparison.rows if row.limits) and LIMIT == 1.3


def test_the_command_measures_memory_and_rounds(monkeypatch: pytest.MonkeyPatch) -> None:
    made = [Comparison("flower", title, (), (), 1) for title in ("memory", "rounds")]
    monkeypatch.setattr(flower_memory, "measure", lambda tick: made[0])
    monkeypatch.setattr(flower_rounds, "measure", lambda repeats, tick: made[1])
    assert command.measure("flower", 1) == made
    assert "flower" not in command.NAMES[:5], "it takes minutes, so it is not measured by default"


@pytest.mark.slow
def test_rounds_of_a_real_federation() -> None:
    comparison = flower_rounds.measure(1, secure=False)
    assert [row.name for row in comparison.rows] == [
        "empty round",
        "empty round, client imports torch",
        "dragfl, drag",
    ]
    assert all(row.median > 0 for row in comparison.rows)
