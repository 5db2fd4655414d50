"""The 22 kinds of bad replies to dragfl's own server: the run completes, as if the node were not there."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from flwr.app import Context, Message
from torch import Tensor

import dragfl
from dragfl.flower import client_app
from tests.conftest import Load
from tests.flower.bad_replies import BAD_REPLIES, REASONS, reordered_keys
from tests.flower.native import Federation

NODE, ROUNDS = 4, 2
FLOWER = {"flower": {"deadline": 20.0, "wait": 60.0}}


def federation(spec: dragfl.Experiment, folder: Path, kind: str) -> Federation:
    """A federation in which node 4 replies to every order in this way."""
    app = client_app(spec)

    def raising(message: Message, context: Context) -> Message:
        if message.metadata.message_type != "query.hello":
            raise RuntimeError("out of memory")
        return app(message, context)

    apps = [raising if kind == "raised" and m == NODE else app for m in range(6)]
    made = Federation(spec, folder, app=apps)
    grid = made.grid

    def tamper(reply: Message) -> Message:
        mine = reply.metadata.src_node_id == grid.ids[NODE] and "hello" not in reply.metadata.message_type
        return BAD_REPLIES[kind](reply) if mine else reply

    def leaves(node: int, round: int) -> float:
        grid.offline = {NODE} if round else set()  # while it trains
        return 0.0

    grid.doubled = lambda node, round: kind == "doubled" and node == NODE and round > 0
    grid.drop = lambda node, round: kind == "lost" and node == NODE and round > 0
    if kind in BAD_REPLIES:
        grid.tamper = tamper
    if kind == "gone":
        grid.delay = leaves
    return made


def after(made: Federation) -> tuple[Tensor, list[dragfl.RoundRecord]]:
    simulation = made.simulation()
    records = list(simulation)
    assert len(records) == ROUNDS
    return simulation.state.w, records


@pytest.mark.parametrize("algorithm", ["drag", "scaffold", "trimmed_mean"])
@pytest.mark.parametrize("kind", REASONS)
def test_a_bad_reply_is_counted_and_never_reaches_the_model(
    experiment: Load, tmp_path: Path, kind: str, algorithm: str
) -> None:
    spec = experiment(rounds=ROUNDS, algorithm={"name": algorithm}, engine={"block": 4}, **FLOWER)
    made = federation(spec, tmp_path / "bad", kind)
    w, records = after(made)
    reason, used = REASONS[kind], REASONS[kind] is None or kind == "doubled"
    expected, _ = after(federation(spec, tmp_path / "expected", "good" if used else "lost"))
    assert torch.equal(w, expected)
    counts = made.backend.refusals.counts
    assert counts == ({} if reason is None else {f"node{NODE}": {reason: ROUNDS}})
    for record in records:
        assert record.clients.get("reason", [None] * 6)[NODE] == (None if used else reason)
        assert record.metrics["used"] == 6 - (not used) and record.clients["node"][NODE] == f"node{NODE}"
        failed = reason in ("client error", "offline", None)
        assert record.metrics.get("refused", 0) == (0 if failed else 1)
        assert record.metrics.get("errors", 0) == (reason == "client error")


@pytest.mark.parametrize("kind", [kind for kind in BAD_REPLIES if kind != "no metrics"])
def test_a_bad_gradient_is_counted_and_never_reaches_the_model(experiment: Load, tmp_path: Path, kind: str) -> None:
    """Mime asks for a gradient first; both replies are bad."""
    spec = experiment(rounds=ROUNDS, algorithm={"name": "mime"}, engine={"block": 4}, **FLOWER)
    made = federation(spec, tmp_path / "bad", kind)
    w, _ = after(made)
    expected, _ = after(federation(spec, tmp_path / "expected", "good" if REASONS[kind] is None else "lost"))
    assert torch.equal(w, expected)
    if REASONS[kind] is not None:
        assert sum(made.backend.refusals.counts[f"node{NODE}"].values()) == 2 * ROUNDS


def test_reordered_keys_are_accepted(experiment: Load, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(BAD_REPLIES, "reordered", reordered_keys)
    spec = experiment(rounds=ROUNDS, algorithm={"name": "scaffold"}, **FLOWER)
    made = federation(spec, tmp_path / "reordered", "reordered")
    w, _ = after(made)
    assert torch.equal(w, after(federation(spec, tmp_path / "good", "good"))[0])
    assert not made.backend.refusals.counts


def test_a_norm_above_max_norm_is_refused(experiment: Load, tmp_path: Path) -> None:
    """Client 4 alone is above the limit, which is between its norm and the largest of the others."""
    spec = experiment(rounds=1, clients={"local_steps": 2}, **FLOWER)
    _, (record,) = after_one(Federation(spec, tmp_path / "free"))
    norms = record.clients["norm"]
    highest = max(range(6), key=lambda m: norms[m])
    limit = (norms[highest] + sorted(norms)[-2]) / 2
    limited = experiment(rounds=1, flower=FLOWER["flower"] | {"max_norm": limit})
    made = Federation(limited, tmp_path / "limited")
    _, (record,) = after_one(made)
    assert record.clients["reason"][highest] == "norm above max_norm" and record.metrics["used"] == 5
    assert made.backend.refusals.counts == {f"node{highest}": {"norm above max_norm": 1}}


def after_one(made: Federation) -> tuple[Tensor, list[dragfl.RoundRecord]]:
    simulation = made.simulation()
    records = list(simulation)
    return simulation.state.w, records
