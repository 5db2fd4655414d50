"""The server's half of a round. Results may come from anywhere: a simulator's backend or real clients.

open    sample the cohort, compute the server's inputs, make the broadcast
begin   fix the aggregate's plan
take    add a folded block; clients are identified by their id
close   finish the aggregate, the correction's server half and the server step
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields, is_dataclass, replace
from math import isfinite

import torch
from torch import Tensor

from dragfl.arithmetic import finite_rows, norm
from dragfl.engine import calls
from dragfl.engine.aggregation import BlockResult, Sums, Total
from dragfl.engine.client import BUFFERS, TrainTask
from dragfl.engine.iterate import own_model
from dragfl.engine.round_log import RoundLog
from dragfl.engine.state import FederationState, Server
from dragfl.errors import Diverged
from dragfl.schedules import at
from dragfl.types import Partial, Plan, Robust, RoundContext, RoundInputs, RoundRecord, State

EXPLODED = 1e6  # a model this many times longer than 1 + |w at the start| has diverged


def sample_clients(fed: Server, context: RoundContext) -> tuple[int, ...]:
    """The clients of this round, without replacement, in the order of their ids."""
    total, size = fed.info.clients, fed.info.per_round
    if size == total:
        return tuple(range(total))
    return tuple(sorted(context.rng("sample").choice(total, size, replace=False).tolist()))


def available_clients(fed: Server, context: RoundContext, cohort: tuple[int, ...]) -> tuple[int, ...]:
    """The sampled clients that take part, each with probability `availability`."""
    if fed.availability == 1.0:
        return cohort
    drawn = context.rng("available").random(len(cohort)).tolist()
    return tuple(m for m, value in zip(cohort, drawn, strict=True) if value < fed.availability)


@dataclass
class ServerRound:
    """One round as the server sees it."""

    fed: Server
    state: FederationState
    context: RoundContext
    present: tuple[int, ...]  # the sampled clients that take part
    attackers: frozenset[int]  # among them
    inputs: RoundInputs  # the root update, the cohort gradient and the model, where a part needs them
    broadcast: dict[str, Tensor]
    log: RoundLog
    plan: Plan = field(default_factory=Total)
    sums: Sums = field(default_factory=Sums)
    skipped: str = "no usable update"

    @staticmethod
    def open(fed: Server, state: FederationState, cohort: tuple[int, ...] | None = None) -> ServerRound:
        """Sample the cohort, unless one is given, and make the broadcast."""
        fed.store.begin(state.t + 1)
        context = RoundContext(state.t, at(fed.lr, state.t), fed.seed, fed.momentum)
        cohort = sample_clients(fed, context) if cohort is None else cohort
        present = available_clients(fed, context, cohort)
        attackers = fed.adversary.active(context, cohort, fed.info.clients) if fed.adversary else frozenset[int]()
        log = RoundLog(cohort, attackers)
        correction, rule = fed.algorithm.correction, fed.algorithm.aggregate
        needs, to_send = calls.needs(rule, state.aggregate), calls.needs(correction, state.correction)
        root = fed.backend.train_root(state.w, context, state.buffers) if "root" in needs | to_send else None
        directions = None
        if "directions" in needs:
            directions = fed.backend.train_directions(state.w, context, state.buffers)
        gradient = cohort_gradient(fed, state, context, log, present, to_send)
        sent = RoundInputs(root=root if "root" in to_send else None, gradient=gradient)
        broadcast = dict(calls.broadcast(correction, state.correction, context, sent))
        if state.buffers is not None:
            broadcast[BUFFERS] = state.buffers
        model = state.w if "model" in needs else None
        inputs = RoundInputs(
            root=root if "root" in needs else None, directions=directions, gradient=gradient, model=model
        )
        attackers = attackers.intersection(present)
        skipped = "no usable update" if present else "no sampled client was available"
        return ServerRound(fed, state, context, present, attackers, inputs, broadcast, log, skipped=skipped)

    @property
    def needs(self) -> frozenset[str]:
        return calls.needs(self.fed.algorithm.aggregate, self.state.aggregate)

    def begin(self, mean: Tensor | None = None, results: int | None = None) -> Plan:
        """Fix and return the aggregate's plan. Without a usable update there is no mean, and nothing to fold.

        `results`: how many clients have sent one, if that is known. A robust rule lowers its f by the updates that it
        has to drop; a client that is away is not malicious, and must not lower it.
        """
        if "mean" not in self.needs or mean is not None:
            inputs = replace(self.inputs, mean=mean, gradient=None)
            rule, info = self.fed.algorithm.aggregate, self.fed.info
            info = info if results is None else replace(info, per_round=results)
            self.plan = calls.begin(rule, self.state.aggregate, self.context, inputs, info)
        return self.plan

    def take(self, block: BlockResult) -> bool:
        """Add the sums of a block. A block with an unknown client, or one that has replied already, is ignored."""
        if not self.log.accepts(block.clients):
            return False
        self.log.add(block)
        self.skipped = f"infeasible: {block.infeasible}" if block.infeasible else self.skipped
        for m, used, kept in zip(block.clients, block.used.tolist(), block.states, strict=True):
            if used:
                self.fed.store.stage(m, kept)
        self.sums.add(block.partial)
        return True

    def close(self, attack_state: State) -> tuple[FederationState, RoundRecord]:
        """The next state and the record. Without a usable sum, model, reference and momenta stay as they are."""
        fed, state, context, total = self.fed, self.state, self.context, self.sums.partial
        missing, used = fed.backend.missing(), self.log.used
        metrics = self.log.metrics(context, self.broadcast, state.w)
        metrics |= {"lost_states": fed.store.lost_states} if fed.store.lost_states else {}
        if total is not None and used < fed.min_replies:
            total, self.skipped = None, f"{used} usable replies, {fed.min_replies} required"
        if total is None:
            after = replace(state, t=state.t + 1, attack=attack_state)
            return after, self.log.record(after.t, {**metrics, "skipped": self.skipped}, None, missing)
        parts = fed.algorithm
        step, aggregate, rule_metrics = calls.finish(parts.aggregate, state.aggregate, self.plan, total)
        aggregated, average_step = self._aggregated(total, step), step
        step, correction = calls.server_finish(parts.correction, state.correction, aggregated, step, fed.info, context)
        w, server = calls.update(parts.server, state.server, step, state.w, context)
        check_model(fed, w, state.t + 1)
        check_states(state.t + 1, correction=correction, aggregate=aggregate, server=server)
        fed.store.commit()
        buffers = (total.extra[BUFFERS] / total.count).float() if state.buffers is not None else None
        iterate, own = fed.iterate.update(state.iterate, w), own_model(parts, state.w, average_step, w)
        after = FederationState(state.t + 1, w, correction, aggregate, server, attack_state, buffers, iterate, own)
        metrics |= {**_step_metrics(step, w - state.w, total), **rule_metrics, **_vector_norms(correction)}
        return after, self.log.record(after.t, metrics, total, missing)

    def _aggregated(self, total: Partial, step: Tensor) -> dict[str, Tensor]:
        """What the correction's server half sees: under a robust rule nothing that the rule has not aggregated."""
        robust = isinstance(self.fed.algorithm.aggregate, Robust)
        delta = step.double() * total.count if robust else total.total.double()
        gradient = {} if self.inputs.gradient is None else {"gradient": self.inputs.gradient}
        return {**total.extra, "delta": delta, "count": torch.tensor(float(total.count)), **gradient}


def cohort_gradient(
    fed: Server,
    state: FederationState,
    context: RoundContext,
    log: RoundLog,
    present: tuple[int, ...],
    needs: frozenset[str],
) -> Tensor | None:
    """The mean full gradient of the cohort at w, where the correction needs it: one more exchange, counted."""
    if not needs & {"gradient", "weighted_gradient"}:
        return None
    w, broadcast = state.w, {} if state.buffers is None else {BUFFERS: state.buffers}
    tasks = (
        TrainTask(clients, w, broadcast, context, ({},) * len(clients), log.attackers.intersection(clients))
        for clients in fed.blocks(present)
    )
    total, weight = torch.zeros_like(w, dtype=torch.float64), 0.0
    for block in fed.backend.gradients(tasks):
        log.bytes_up += block.delta.nbytes
        block = block.select(finite_rows(block.norm))
        p = block.weight if "weighted_gradient" in needs else torch.ones_like(block.weight)
        total += p @ block.delta.double()
        weight += float(p.sum())
    return (total / weight).float() if weight else torch.zeros_like(w)


def check_model(fed: Server, w: Tensor, round: int) -> None:
    """Raise `Diverged` before a lost model is kept or saved."""
    size = norm(w)
    if not size <= EXPLODED * (1.0 + fed.initial_norm):
        what = "is not finite" if not size < float("inf") else f"has norm {size:.3g}"
        raise Diverged(
            f"diverged in round {round}: the model {what} (norm at the start: {fed.initial_norm:.3g}); "
            "lower clients.lr, the server lr or c, or use a robust aggregate if clients attack"
        )


def check_states(round: int, **parts: State) -> None:
    """Raise `Diverged` where a vector of the server's state is not finite: it would spoil every later round."""
    for part, value in parts.items():
        for name, vector in vectors_of(value).items():
            if not isfinite(norm(vector)):
                raise Diverged(f"diverged in round {round}: {name} of the {part} is not finite; lower its rate")


def vectors_of(state: State) -> dict[str, Tensor]:
    """The vectors among the fields of a state, by name."""
    found = {f.name: getattr(state, f.name) for f in fields(state)} if is_dataclass(state) else {}
    return {k: v for k, v in found.items() if isinstance(v, Tensor) and v.ndim == 1 and v.is_floating_point()}


def _step_metrics(step: Tensor, moved: Tensor, total: Partial) -> dict[str, float]:
    """Norms of the aggregated step and of the mean update; how far the model moved, in units of the mean update."""
    mean_norm = total.norm / total.count
    ratio = {"step_ratio": norm(moved) / mean_norm} if mean_norm > 0 else {}
    return {"step_norm": norm(step), "mean_norm": mean_norm, **ratio}


def _vector_norms(state: State) -> dict[str, float]:
    """The norm of every vector of the correction's server state: a growing one is an early warning."""
    return {f"{name}_norm": norm(vector) for name, vector in vectors_of(state).items()}
