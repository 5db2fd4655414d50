"""A round, spelled out once.

    sample -> (root update) -> broadcast -> train and craft -> drop what is not finite -> fold -> finish
    -> the correction's server half -> the server step -> record

Everything here is a function of (federation, state): the state goes in and comes out as a value, draws are addressed
by round and client, and sums are added in block order, so neither executors nor interruptions can change a bit.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, fields, is_dataclass, replace
from math import isfinite
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from dragfl.arithmetic import finite_rows, norm
from dragfl.engine.adversary import craft_together, remember_alone
from dragfl.engine.aggregation import BlockResult, Sums, Total, fold, mean_update
from dragfl.engine.worker import BUFFERS, ClientResults, TrainTask, concat
from dragfl.errors import Diverged
from dragfl.schedules import at
from dragfl.types import Partial, Plan, Robust, RoundContext, RoundInputs, RoundRecord, State

if TYPE_CHECKING:
    from dragfl.build import Federation

EXPLODED = 1e6  # a model this many times longer than 1 + |w at the start| has diverged


@dataclass(frozen=True)
class FederationState:
    """Everything a run needs to go on: saved, restored and forked as one value (client states beside it)."""

    t: int  # rounds completed
    w: Tensor
    correction: State
    aggregate: State
    server: State
    attack: State
    buffers: Tensor | None = None  # averaged buffers (BatchNorm), where the model has some


def play(fed: Federation, state: FederationState) -> tuple[FederationState, RoundRecord]:
    """One round of the federation."""
    fed.store.begin(state.t + 1)
    context = RoundContext(state.t, at(fed.experiment.clients.lr, state.t), fed.experiment.seed)
    cohort = sample(fed, context)
    attackers = fed.attackers(context, cohort)
    rule = fed.algorithm.aggregate
    correct = fed.algorithm.correction
    log = _Log(cohort, attackers)
    needs, to_send = rule.needs(state.aggregate), correct.needs(state.correction)
    trusted = fed.worker.train_root(state.w, context, state.buffers) if "root" in needs | to_send else None
    root = trusted if "root" in needs else None
    gradient = mean_gradient(fed, to_send, state, context, log)
    given = RoundInputs(gradient=gradient, root=trusted if "root" in to_send else None)
    sent = correct.broadcast(state.correction, context, given)
    if state.buffers is not None:
        sent = {**sent, BUFFERS: state.buffers}

    jobs = _Jobs(fed, state, context, sent, cohort, attackers)
    together = fed.experiment.attack is not None and fed.experiment.attack.knowledge != "own"
    attack_state = state.attack if together else remember_alone(fed, state, context, attackers)
    kept: list[ClientResults] = []
    if together or "all" in needs:
        kept = list(fed.executor.train(jobs, keep=True))
        if together:
            kept, attack_state = craft_together(fed, state, context, root, kept, attackers)
        kept = [concat(kept)] if "all" in needs else kept

    def folded_by(plan: Plan) -> Iterable[BlockResult]:
        """Every block, folded; blocks that are not kept are trained for it, each time with the same bits."""
        return (fold(rule, plan, block) for block in kept) if kept else fed.executor.fold(jobs, plan)

    mean = mean_update(folded_by(Total())) if "mean" in needs else None
    nobody = "mean" in needs and mean is None  # then there is nothing to fold, and no plan for it
    plan = Total() if nobody else rule.begin(state.aggregate, context, RoundInputs(root=root, mean=mean), fed.info)
    sums = Sums()
    skipped = "no usable update"
    for folded in folded_by(plan):
        skipped = f"infeasible: {folded.infeasible}" if folded.infeasible else skipped
        for m, used, kept_state in zip(log.next(folded), folded.used.tolist(), folded.states, strict=True):
            if used:
                fed.store.stage(m, kept_state)
        sums.add(folded.partial)
    total = sums.partial
    metrics = log.metrics(context, sent, state.w) | ({"lost_states": fed.store.lost} if fed.store.lost else {})

    if total is None:  # nothing usable, or too little for the rule: model, reference and momenta stay as they are
        after = replace(state, t=state.t + 1, attack=attack_state)
        return after, log.record(after.t, {**metrics, "skipped": skipped}, None)
    step, aggregate, rule_metrics = rule.finish(state.aggregate, plan, total)
    delta = step.double() * total.count if isinstance(rule, Robust) else total.total.double()
    over_all = {**total.extra, "delta": delta, "count": torch.tensor(float(total.count))}
    if gradient is not None:
        over_all["gradient"] = gradient
    step, correction = correct.server_finish(state.correction, over_all, step, fed.info, context)
    w, server = fed.algorithm.server.update(state.server, step, state.w, context)
    check_finite(fed, w, state.t + 1)
    check_state(state.t + 1, correction=correction, aggregate=aggregate, server=server)
    fed.store.commit()
    buffers = (total.extra[BUFFERS] / total.count).float() if state.buffers is not None else None
    after = FederationState(state.t + 1, w, correction, aggregate, server, attack_state, buffers)
    metrics |= {**_step_metrics(step, total), **rule_metrics, **_state_norms(correction)}
    return after, log.record(after.t, metrics, total)


def sample(fed: Federation, context: RoundContext) -> tuple[int, ...]:
    """The clients of this round, without replacement, in order of their number."""
    total, size = fed.info.clients, fed.info.per_round
    if size == total:
        return tuple(range(total))
    return tuple(sorted(context.rng("sample").choice(total, size, replace=False).tolist()))


def mean_gradient(
    fed: Federation, needs: frozenset[str], state: FederationState, context: RoundContext, log: _Log
) -> Tensor | None:
    """The mean full gradient of the cohort at w, for a correction that asks for it: one more exchange, counted."""
    if not needs & {"gradient", "weighted_gradient"}:
        return None
    w, sent = state.w, {} if state.buffers is None else {BUFFERS: state.buffers}
    total, weight = torch.zeros_like(w, dtype=torch.float64), 0.0
    for clients in fed.blocks(log.cohort):
        block = fed.worker.gradients(TrainTask(clients, w, sent, context, (), log.attackers.intersection(clients)))
        log.bytes_up += block.delta.nbytes
        block = block.select(finite_rows(block.norm))
        p = block.weight if "weighted_gradient" in needs else torch.ones_like(block.weight)
        total += p @ block.delta.double()
        weight += float(p.sum())
    return (total / weight).float() if weight else torch.zeros_like(w)


def check_state(round: int, **parts: State) -> None:
    """What the server keeps must be finite too: a momentum that overflowed would spoil every round to come."""
    for part, value in parts.items():
        for name, vector in vectors_of(value).items():
            if not isfinite(norm(vector)):
                raise Diverged(f"diverged in round {round}: {name} of the {part} is not finite; lower its rate")


def vectors_of(state: State) -> dict[str, Tensor]:
    """The vectors among the fields of a state, by name."""
    found = {f.name: getattr(state, f.name) for f in fields(state)} if is_dataclass(state) else {}
    return {k: v for k, v in found.items() if isinstance(v, Tensor) and v.ndim == 1 and v.is_floating_point()}


def check_finite(fed: Federation, w: Tensor, round: int) -> None:
    """Stop before a model that is lost is kept or checkpointed."""
    size = norm(w)
    if not size <= EXPLODED * (1.0 + fed.initial_norm):
        what = "is not finite" if not size < float("inf") else f"has norm {size:.3g}"
        raise Diverged(
            f"diverged in round {round}: the model {what} (it started at {fed.initial_norm:.3g}); "
            "lower clients.lr, the server lr or c, or use a robust aggregate if clients attack"
        )


class _Jobs:
    """The blocks of a round as jobs, made when they are asked for: client states are read a block at a time."""

    def __init__(
        self,
        fed: Federation,
        state: FederationState,
        context: RoundContext,
        sent: Mapping[str, Tensor],
        cohort: tuple[int, ...],
        attackers: frozenset[int],
    ) -> None:
        self._fed, self._state, self._now, self._sent, self._cohort = fed, state, context, sent, cohort
        own = fed.experiment.attack is not None and fed.experiment.attack.knowledge == "own"
        self._attackers = attackers if own else frozenset[int]()

    def __iter__(self) -> Iterator[TrainTask]:
        for clients in self._fed.blocks(self._cohort):
            states = tuple(self._fed.store.read(m) for m in clients)
            attackers = self._attackers.intersection(clients)
            yield TrainTask(clients, self._state.w, self._sent, self._now, states, attackers, self._state.attack)


def _step_metrics(step: Tensor, total: Partial) -> dict[str, float]:
    step_norm, mean_norm = norm(step), norm(total.total) / total.count
    ratio = {"step_ratio": step_norm / mean_norm} if mean_norm > 0 else {}
    return {"step_norm": step_norm, "mean_norm": mean_norm, **ratio}


def _state_norms(state: State) -> dict[str, float]:
    """The length of every vector that a correction keeps on the server: a growing one is an early warning."""
    return {f"{name}_norm": norm(vector) for name, vector in vectors_of(state).items()}


class _Log:
    """Collects what the record of a round needs while its blocks pass by."""

    def __init__(self, cohort: tuple[int, ...], attackers: frozenset[int]) -> None:
        self.cohort, self.attackers = cohort, attackers
        self.used: list[bool] = []
        self.loss: list[float] = []
        self.steps: list[int] = []
        self.bytes_up = 0

    def next(self, block: BlockResult) -> tuple[int, ...]:
        """Take note of the next block; its clients."""
        first = len(self.used)
        self.used += block.used.tolist()
        self.loss += block.loss
        self.steps += block.steps
        self.bytes_up += block.bytes_up
        return self.cohort[first : len(self.used)]

    def metrics(self, context: RoundContext, sent: Mapping[str, Tensor], w: Tensor) -> dict[str, float | int | str]:
        down = w.nbytes + sum(value.nbytes for value in sent.values())
        return {
            "sampled": len(self.cohort),
            "used": sum(self.used),
            "dropped_nonfinite": len(self.used) - sum(self.used),
            "attackers": len(self.attackers),
            "lr": context.lr,
            "train_loss": _json_number(sum(self.loss) / len(self.loss)),
            "bytes_down": down * len(self.cohort),
            "bytes_up": self.bytes_up,
        }

    def record(self, round: int, metrics: Mapping[str, Any], total: Partial | None) -> RoundRecord:
        clients: dict[str, list[Any]] = {
            "client": list(self.cohort),
            "attacker": [m in self.attackers for m in self.cohort],
            "dropped": [not used for used in self.used],
            "steps": self.steps,
            "loss": [_short(value) for value in self.loss],
        }
        for name, values in (total.per_client if total else {}).items():
            rest = iter(values.tolist())
            clients[name] = [_short(next(rest)) if used else None for used in self.used]
        return RoundRecord(round, {name: _json_number(value) for name, value in metrics.items()}, clients, {})


def _short(value: float) -> float | None:
    """Six digits are plenty for a picture and keep the files small; JSON knows no NaN."""
    number = float(f"{value:.6g}")
    return number if abs(number) < float("inf") else None


def _json_number(value: Any) -> Any:
    """NaN and infinities as words, since JSON has no number for them; a rule's own metric may be a 0-d tensor."""
    value = value if isinstance(value, int | float | str) else float(value)
    return value if not isinstance(value, float) or abs(value) < float("inf") else str(value)
