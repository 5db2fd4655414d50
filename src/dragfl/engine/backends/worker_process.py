"""A worker process: `python -m dragfl.engine.backends.worker_process DESCRIPTOR`, started by `children.py`.

It is told of an experiment by its tables and puts everything in place itself, as the parent did: data are maps of
files, so that all processes share their pages. Then it is asked for pieces of work and answers each in turn.

    down  ("prepare", n, settings of the process, tables), the region's descriptor    up  ("ready", n, None or error)
          ("brief", Brief)                                                                -
          ("train", slot, first row, clients, attackers), ("score", test block),          ("done", answer),
          ("fold", slot, clients, what was answered of them)                              ("failed", *error)
          ("forget",)                                                                     -

It ignores Ctrl-C (the parent decides). A thread listens, so that it ends in the middle of its work when its parent is
gone. Without an experiment it waits a while for the next one of a sweep, and ends.
"""

from __future__ import annotations

import os
import queue
import signal
import sys
import threading
import traceback
from collections.abc import Mapping
from multiprocessing import reduction
from multiprocessing.connection import Connection
from typing import Any

import torch
from torch import Tensor

from dragfl.engine.aggregation import fold
from dragfl.engine.allocator import keep_freed_memory
from dragfl.engine.backends.pool_slots import received
from dragfl.engine.backends.shared_memory import Answer, Brief, FoldAnswer, Region, flat, part, put, with_tensors
from dragfl.engine.worker import TrainTask, Worker

PATIENCE_S = 30.0  # without an experiment


class Desk:
    """An experiment put in place, and the brief of the call at hand."""

    def __init__(self, worker: Worker, region: Region) -> None:
        self._worker, self._region = worker, region
        self._brief = Brief(0, {})
        self._header: dict[str, Tensor] = {}
        self._slots: list[dict[str, Tensor]] = []
        self._attack: Any = None
        self._plan: Any = None

    def take(self, brief: Brief) -> None:
        self._brief = brief
        self._region.reach(brief.size)
        self._header = {name: self._region.tensor(place) for name, place in brief.header.items()}
        self._slots = [{name: self._region.tensor(place) for name, place in slot.items()} for slot in brief.slots]
        self._attack = with_tensors(brief.attack, part(self._header, "attack"))
        self._plan = with_tensors(brief.plan, part(self._header, "plan"))

    def score(self, block: int) -> tuple[int, float]:
        return self._worker.score(self._header["w"], block, self._header.get("buffers"))

    def train(self, slot: int, first: int, clients: tuple[int, ...], attackers: frozenset[int]) -> Answer:
        """Train these clients into rows of the slot; what the slot has no room for goes into the answer."""
        rows = {name: value[first : first + len(clients)] for name, value in self._slots[slot].items()}
        mine = part(rows, "mine")
        before = tuple({name: value[i] for name, value in mine.items()} for i in range(len(clients)))
        context = self._brief.context
        assert context is not None
        job = TrainTask(
            clients, self._header["w"], part(self._header, "sent"), context, before, attackers, self._attack
        )
        sent = self._worker.train(job, rows["delta"])
        updates = sent.updates
        if updates.delta is not rows["delta"]:
            rows["delta"].copy_(updates.delta)
        extra = {n: v.numpy() for n, v in updates.extra.items() if not put(rows.get(f"extra/{n}"), v)}
        after = part(rows, "next")
        fits = [_put_all(sent.states[i], {n: v[i] for n, v in after.items()}) for i in range(len(clients))]
        states = () if all(fits) else tuple({n: v.numpy() for n, v in s.items()} for s in sent.states)
        return Answer(sent.loss, sent.steps, tuple(updates.weight.tolist()), tuple(updates.extra), extra, states)

    def fold(self, slot: int, clients: tuple[int, ...], answers: list[Answer]) -> FoldAnswer:
        """Fold a block that lies in the slot; sums that the slot has no room for go into the answer."""
        room = self._slots[slot]
        folded = fold(self._worker.aggregate, self._plan, received(clients, room, answers))
        named = flat(folded.partial)
        rest = {n: v.numpy() for n, v in named.items() if not put(room.get(f"folded/{n}"), v)}
        count = folded.partial.count if folded.partial else 0
        used = tuple(folded.used.tolist())
        return FoldAnswer(count, tuple(named), rest, used, folded.bytes_up, folded.infeasible)


def _put_all(state: Mapping[str, Tensor], room: Mapping[str, Tensor]) -> bool:
    return state.keys() == room.keys() and all(put(room[name], value) for name, value in state.items())


def prepare(process: Mapping[str, Any], tables: Mapping[str, Any], region: Region) -> Desk:
    """The experiment of these tables, seen from where the parent stands."""
    from dragfl.build import equip
    from dragfl.config.spec import load

    os.chdir(process["folder"])
    os.environ.update(process["environment"])
    sys.path[:] = process["path"]
    return Desk(equip(load(tables))[1], region)


def described(error: Exception) -> tuple[str, str, str]:
    return type(error).__name__, str(error), traceback.format_exc()


def serve(channel: Connection[Any, Any], messages: queue.Queue[tuple[Any, ...]]) -> None:
    """Answer one message after the other, until nobody has work any more."""
    desk: Desk | None = None
    while True:
        kind, *rest = messages.get(timeout=None if desk else PATIENCE_S)
        if kind == "forget":
            desk = None
        elif kind == "prepare":
            number, *about = rest
            try:
                desk = prepare(*about)
                channel.send(("ready", number, None))
            except Exception as error:
                channel.send(("ready", number, described(error)))
        elif desk is not None and kind == "brief":
            desk.take(*rest)
        elif desk is not None:
            try:
                channel.send(("done", getattr(desk, kind)(*rest)))
            except Exception as error:
                channel.send(("failed", *described(error)))


def main() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    os.dup2(2, 1)  # what a user's code prints must not run into the parent's own output
    torch.set_num_threads(1)
    keep_freed_memory()
    channel: Connection[Any, Any] = Connection(int(sys.argv[1]))
    messages: queue.Queue[tuple[Any, ...]] = queue.Queue()

    def listen() -> None:
        try:
            while True:
                message = channel.recv()
                if message[0] == "prepare":  # the descriptor follows at once
                    message = (*message, Region(reduction.recv_handle(channel)))
                messages.put(message)
        except (EOFError, OSError):
            os._exit(0)  # the parent is done, or gone

    threading.Thread(target=listen, daemon=True).start()
    try:
        serve(channel, messages)
    except (queue.Empty, OSError):
        os._exit(0)


if __name__ == "__main__":
    main()
