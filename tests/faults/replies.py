"""Fuzzed client results through the server half of a round, half of them as Flower messages through their reader.

Every round has honest updates, and results with fuzzed ids, weights, values, extras or bytes. After the round the step
is compared with the bound of its rule: with plain averaging it must be exactly the mean of the finite results of
sampled clients that were the first of their id.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from flwr.app import Array, ConfigRecord, Message
from numpy.typing import NDArray
from torch import Tensor

import dragfl
from dragfl.arithmetic import norm
from dragfl.engine.aggregation import fold
from dragfl.engine.client import ClientResults, TrainTask, concat
from dragfl.engine.server_round import ServerRound
from dragfl.engine.state import FederationState
from dragfl.engine.threads import one_thread, own_generator
from dragfl.errors import Diverged
from dragfl.flower.hello import REPLY
from dragfl.flower.messages import Order, payload_of, read_update, train_message, update_reply
from dragfl.flower.records import Refused
from dragfl.types import Updates
from tests.faults.runs import Bench
from tests.faults.table import Row
from tests.flower.bad_replies import BAD_REPLIES
from tests.flower.local_grid import set_identity

COHORT = 100
SLACK = 1.0 + 1e-5
RADIUS = 0.5
F = 30  # of rules that assume a number of attackers
RULES: dict[str, dict[str, Any]] = {
    "mean": {"name": "fedavg"},
    "scaffold": {"name": "scaffold"},
    "br_drag": {"name": "br_drag", "c": 0.5},
    "cone_drag": {"name": "cone_drag"},
    "fltrust": {"name": "fltrust"},
    "norm_clipping": {"aggregate": {"name": "norm_clipping", "radius": RADIUS}},
    "centered_clipping": {"aggregate": {"name": "centered_clipping", "radius": RADIUS, "iterations": 1}},
    "median": {"name": "median"},
    "trimmed_mean": {"name": "trimmed_mean", "f": F},
    "geometric_median": {"name": "geometric_median"},
    "krum": {"name": "krum", "f": F},
}
TABLES: dict[str, Any] = {
    "rounds": 10**6,
    "data": {"dataset": "digits", "partition": {"kind": "resampled", "k": 20}},
    "clients": {"total": 1000, "per_round": COHORT, "local_steps": 1, "batch_size": 10},
    "model": {"name": "logistic"},
    "root": {"size": 50},
    "attack": {"name": "none"},
}
Values = NDArray[np.float32]
SIZES = (1e-45, 1e-40, 1e-38, 1e-30, 1e-6, 1e6, 1e19, 1e38, 3.4e38)
WEIGHTS = (0.0, -1.0, -5.0, float("nan"), float("inf"), 1e-300, 1e18, 1e300)
IDS = (-1, 1000, 10**6, 2**62)


@dataclass(frozen=True)
class Result:
    """One result as it is sent; `honest` if it was not fuzzed."""

    client: int
    delta: Values
    weight: float
    extra: dict[str, Values]
    honest: bool

    def as_results(self, state: Mapping[str, Tensor]) -> ClientResults:
        extra = {name: torch.from_numpy(value[None]) for name, value in self.extra.items()}
        weight = torch.tensor([self.weight], dtype=torch.float64)
        client, steps = torch.tensor([self.client]), torch.tensor([1])
        updates = Updates(torch.from_numpy(self.delta[None]), weight, client, extra, steps)
        return ClientResults(updates, (0.5,), (1,), (state,))

    def usable(self) -> bool:
        arrays = [self.delta, *self.extra.values()]
        return all(np.isfinite(a).all() for a in arrays) and bool(np.isfinite(self.weight)) and self.weight > 0


def _values(draws: np.random.Generator, values: Values) -> Values:
    """Another vector of the same shape: huge, denormal, not finite in one place, NaN with a payload, zero, opposite."""
    found, at = values.copy(), int(draws.integers(values.size))
    kind = int(draws.integers(7))
    if kind == 0:
        found = (found.astype(np.float64) * (draws.choice(SIZES) / max(np.abs(found).max(), 1e-9))).astype(np.float32)
    elif kind == 1:
        found[at] = draws.choice([np.nan, np.inf, -np.inf])
    elif kind == 2:
        found.view(np.uint32)[at] = 0x7F800001 | int(draws.integers(1 << 22)) | int(draws.integers(2)) << 31
    elif kind == 3:
        found[:] = 0.0
    elif kind == 4:
        found *= np.float32(-draws.choice([1.0, 10.0, 1e4]))
    elif kind == 5:
        found[:] = draws.integers(0, 2**32, found.size, dtype=np.uint32).view(np.float32)  # random bits
    else:
        found[at] = np.float32(draws.choice(SIZES))
    return found


def make_results(draws: np.random.Generator, cohort: tuple[int, ...], honest: Values, sends: list[str]) -> list[Result]:
    """One honest or fuzzed result for each client, and some that nobody asked for, in random order."""
    results = []
    for i, client in enumerate(cohort):
        extra = {name: honest[i].copy() for name in sends}
        good = Result(client, honest[i], float(draws.integers(1, 50)), extra, True)
        results.append(good)
        if draws.random() < 0.5:
            kind = int(draws.integers(5))
            bad = replace(good, honest=False)
            if kind == 0:
                bad = replace(bad, weight=float(draws.choice(WEIGHTS)))
            elif kind == 1:
                bad = replace(bad, client=int(draws.choice(IDS)))
            elif kind == 2 and sends:
                bad = replace(bad, extra={name: _values(draws, value) for name, value in extra.items()})
            elif kind != 3:  # 3: a copy of the honest one
                bad = replace(bad, delta=_values(draws, bad.delta))
            instead = draws.random() < 0.5  # of the honest one, or in addition to it
            results = results[:-1] + [bad] if instead else results + [bad]
    return [results[i] for i in draws.permutation(len(results))]


@dataclass
class Fuzzer:
    """A server whose rounds get fuzzed results."""

    name: str
    draws: np.random.Generator

    def __post_init__(self) -> None:
        experiment = dragfl.load({**TABLES, "algorithm": RULES[self.name]})
        self.fed = dragfl.simulate(experiment).federation
        self.sends = self.fed.worker.local.sends
        self.zeros = self.fed.worker.local.keeps.zeros()  # the state of every client
        self.state: FederationState = self.fed.start()
        self.round = 0

    def step(self, through_messages: bool) -> tuple[int, int, int, str]:
        """(refused, within the bound, in rounds that stopped as diverged, the problem) of the results of one round."""
        self.round += 1
        state = replace(self.fed.start(), t=self.round, aggregate=self.state.aggregate)
        server = ServerRound.open(self.fed, state)
        honest = (0.05 * self.draws.normal(size=(COHORT, self.fed.info.dim)) + 0.02).astype(np.float32)
        results = make_results(self.draws, server.present, honest, list(self.sends.shapes))
        sent = len(results)
        if through_messages:
            results = self._read(server, results)
        blocks = self._blocks(results)
        accepted: list[Result] = []
        seen: set[int] = set()
        rule = self.fed.algorithm.aggregate
        try:
            mean = None
            if "mean" in server.needs:
                usable = [r.delta.astype(np.float64) for block in blocks for r in block if r.usable()]
                mean = torch.from_numpy(np.mean(usable, 0).astype(np.float32)) if usable else None
            if "all" in server.needs:
                blocks = [self._first_known(server, [r for block in blocks for r in block])]
            plan = server.begin(mean, len(blocks[0]) if "all" in server.needs else None)
            for block in blocks:
                taken = server.take(fold(rule, plan, concat([r.as_results(self.zeros) for r in block])))
                ids = [r.client for r in block]
                expected = len(set(ids)) == len(ids) and set(ids) <= set(server.present) and not seen & set(ids)
                if taken != expected:
                    return sent, 0, 0, f"{self.name}: a block of {ids} was {'taken' if taken else 'ignored'}"
                if taken:
                    seen |= set(ids)
                    accepted += [r for r in block if r.usable()]
            after, record = server.close(None)
        except Diverged:
            return sent - len(accepted), 0, len(accepted), ""
        if record.metrics["used"] != len(accepted) and "infeasible" not in str(record.metrics.get("skipped")):
            return sent, 0, 0, f"{self.name}: {record.metrics['used']} used, {len(accepted)} usable"
        problem = "" if record.metrics.get("skipped") else self._problem(server, state, after, accepted)
        self.state = after
        return sent - len(accepted), len(accepted), 0, problem

    def _first_known(self, server: ServerRound, results: list[Result]) -> list[Result]:
        """As a server that keeps the results of a round: the first one of each sampled client."""
        first: dict[int, Result] = {}
        for result in results:
            if result.client in server.present:
                first.setdefault(result.client, result)
        return list(first.values())

    def _blocks(self, results: list[Result]) -> list[list[Result]]:
        blocks, i = [], 0
        while i < len(results):
            size = int(self.draws.integers(1, 4))
            blocks.append(results[i : i + size])
            i += size
        return blocks

    def _read(self, server: ServerRound, results: list[Result]) -> list[Result]:
        """Send every result as a message with random changes, and read it as the server on Flower does."""
        found = []
        task = TrainTask(server.present, server.state.w, server.broadcast, server.context, ({},) * COHORT)
        payload = payload_of(task)
        for result in results:
            if result.client not in server.present:
                continue  # ids are not read from a message: the server knows whom it has asked
            one = replace(task, clients=(result.client,), states=({},))
            order = Order("ab", 0, 0, secrets.token_hex(16), False, one, 10)
            message = train_message(order, 2**63 + result.client, 60.0, payload)
            reply = update_reply(message, order, result.as_results({}))
            try:
                reply = reply if result.honest else self._tampered(reply)
                read, _ = read_update(reply, order, self.sends, self.fed.info.dim)
            except Refused:
                continue
            updates = read.updates
            extra = {name: value[0].numpy().copy() for name, value in updates.extra.items()}
            found.append(
                Result(
                    int(updates.client), updates.delta[0].numpy().copy(), float(updates.weight), extra, result.honest
                )
            )
        return found

    def _tampered(self, reply: Message) -> Message:
        """A known bad change, random bytes, other claims, or no change: then the values are what is fuzzed."""
        kind = int(self.draws.integers(5))
        if kind == 0:
            return BAD_REPLIES[str(self.draws.choice(list(BAD_REPLIES)))](reply)
        record = next(iter(reply.content.array_records.values()))
        name = str(self.draws.choice(list(record)))
        array = record[name]
        if kind == 1:
            data = bytearray(array.data)
            for at in self.draws.integers(0, len(data), int(self.draws.integers(1, 9))):
                data[at] = int(self.draws.integers(256))
            cut = int(self.draws.integers(len(data))) if self.draws.random() < 0.2 else len(data)
            record[name] = Array(array.dtype, tuple(array.shape), array.stype, bytes(data[:cut]))
        elif kind == 2:
            dtype = str(self.draws.choice(["float64", "int64", "object", "U8", "", "float32,float32", "M8[s]"]))
            shape = tuple(int(n) for n in self.draws.integers(-2, 2**31, int(self.draws.integers(0, 4))))
            record[name] = Array(dtype, shape, array.stype, array.data)
        elif kind == 3:
            config = reply.content[REPLY]
            assert isinstance(config, ConfigRecord)
            key = str(self.draws.choice(["nonce", "round", "lost", "from_zeros"]))
            changes: list[Any] = [True, -1, 1e300, "", "x" * 100, [1, 2], b"\0"]
            config[key] = changes[int(self.draws.integers(len(changes)))]
        return reply

    def _problem(
        self, server: ServerRound, state: FederationState, after: FederationState, accepted: list[Result]
    ) -> str:
        """How the step is beyond the bound of the rule; "" if it is not."""
        step = (after.w.double() - state.w.double()).numpy()
        if not np.isfinite(step).all():
            return f"{self.name}: the model is not finite"
        limit, what = self._limit(server, state, step, accepted)
        return f"{self.name}, round {self.round}: {what} {limit:.6g}" if limit > SLACK else ""

    def _limit(
        self, server: ServerRound, state: FederationState, step: NDArray[np.float64], accepted: list[Result]
    ) -> tuple[float, str]:
        """(how many times the bound the step is, what is compared)."""
        rounding = 1e-6 * norm(state.w)  # of w + step in float32
        if self.name in ("mean", "scaffold"):
            mean = np.mean([r.delta.astype(np.float64) for r in accepted], 0)
            allowed = 1e-6 * float(np.linalg.norm(mean)) + rounding
            return float(np.linalg.norm(step - mean)) / allowed, "distance from the mean / rounding error"
        if self.name in ("br_drag", "cone_drag", "fltrust"):
            root: Tensor = server.inputs.root  # type: ignore[assignment]
            return (float(np.linalg.norm(step)) - rounding) / norm(root), "|step| / |root update|"
        if self.name == "norm_clipping":
            return (float(np.linalg.norm(step)) - rounding) / RADIUS, "|step| / radius"
        if self.name == "centered_clipping":
            center = vars(state.aggregate).values()
            before = next((v for v in center if isinstance(v, Tensor)), torch.zeros(len(step))).double().numpy()
            return (float(np.linalg.norm(step - before)) - rounding) / RADIUS, "|step - step before| / radius"
        fuzzed = sum(not r.honest for r in accepted)
        rows = np.stack([r.delta for r in accepted if r.honest]).astype(np.float64)
        if self.name in ("median", "trimmed_mean") and fuzzed <= F:
            over = np.maximum(step - rows.max(0), rows.min(0) - step).max() - rounding
            return 1.0 + max(0.0, float(over)) * 1e6, "outside the range of honest updates, by 1e-6,"
        return 0.0, ""


def server_results(bench: Bench) -> Row:
    return _fuzz(bench, Row("fuzzed client results", "server half, 11 rules"), False, bench.number(60_000, 3_000))


def reply_messages(bench: Bench) -> Row:
    return _fuzz(bench, Row("fuzzed client results", "Flower messages, 11 rules"), True, bench.number(60_000, 1_500))


def _fuzz(bench: Bench, row: Row, through_messages: bool, number: int) -> Row:
    """Rounds of all rules in turn, until so many results were sent."""
    set_identity()
    with one_thread(), own_generator():
        fuzzers = [Fuzzer(name, np.random.default_rng(bench.draws.integers(2**32))) for name in RULES]
        while row.injected < number:
            for fuzzer in fuzzers:
                try:
                    refused, within, diverged, problem = fuzzer.step(through_messages)
                except Exception as error:
                    refused, within, diverged, problem = 0, 1, 0, f"{fuzzer.name}: raised {error!r}"
                row.trials += 1
                row.add("named", refused + diverged)
                row.add("lost" if problem else "harmless", within or bool(problem), problem)
            if row.trials % 110 == 0:
                bench.tick(f"{row.injected:,} of {number:,}")
    return row
