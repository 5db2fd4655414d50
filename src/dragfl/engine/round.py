"""A round, spelled out once.

    sample -> broadcast -> (root update) -> train and craft -> drop what is not finite -> fold -> finish
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
from dragfl.engine.crafting import craft_together, remember_alone
from dragfl.engine.worker import BUFFERS, Folded, Job, Sent, concat, mean_update
from dragfl.errors import Diverged, Infeasible
from dragfl.schedules import at
from dragfl.types import Given, Now, Partial, RoundRecord, State, Updates

if TYPE_CHECKING:
    from dragfl.engine.federation import Federation

EXPLODED = 1e6  # a model this many times longer than 1 + |w at the start| has diverged
KEEP_BYTES = 1 << 30  # a cohort up to this size is kept between two passes; a larger one is trained twice


@dataclass(frozen=True)
class FederationState:
    """Everything a run needs to go on: saved, restored and forked as one value (client states beside it)."""

    t: int  # rounds completed
    w: Tensor
    correction: State
    aggregate: State
    server: State
    attack: State
    evaluate: Tensor | None = None  # the iterate to report, where that is not w
    buffers: Tensor | None = None  # averaged buffers (BatchNorm), where the model has some


def play(fed: Federation, state: FederationState) -> tuple[FederationState, RoundRecord]:
    """One round of the federation."""
    fed.store.begin(state.t + 1)
    now = Now(state.t, at(fed.experiment.clients.lr, state.t), fed.experiment.seed, fed.nominal_steps)
    cohort = sample(fed, now)
    attackers = fed.attackers(now, cohort)
    rule = fed.algorithm.aggregate
    correct = fed.algorithm.correction
    log = _Log(cohort, attackers)
    gradient = mean_gradient(fed, correct.needs(state.correction), state, now, log)
    sent = correct.broadcast(state.correction, now, Given(gradient=gradient))
    if state.buffers is not None:
        sent = {**sent, BUFFERS: state.buffers}
    needs = rule.needs(state.aggregate)

    jobs = _Jobs(fed, state, now, sent, cohort, attackers)
    root = fed.worker.train_root(state.w, now, state.buffers) if "root" in needs else None
    together = fed.experiment.attack is not None and fed.experiment.attack.knowledge != "own"
    blocks: Iterable[Sent]
    attack_state = state.attack if together else remember_alone(fed, state, now, attackers)
    if together or "all" in needs:
        kept = list(jobs.train(keep=True))
        if together:
            kept, attack_state = craft_together(fed, state, now, root, kept, attackers)
        blocks = [concat(kept)] if "all" in needs else kept
    elif "mean" in needs and 4 * fed.setting.dim * len(cohort) <= KEEP_BYTES:
        blocks = list(jobs.train(keep=True))
    else:
        blocks = jobs.each_time()

    mean = mean_update(blocks) if "mean" in needs else None
    nobody = "mean" in needs and mean is None  # then there is nothing to fold, and no plan for it
    plan = None if nobody else rule.begin(state.aggregate, now, Given(root=root, mean=mean), fed.setting)
    total: Partial | None = None
    extra: dict[str, Tensor] = {}
    skipped = "no usable update"
    for block in blocks:
        try:
            folded = fold(fed, plan, block)
        except Infeasible as error:  # of a rule that asks for everyone, so this is the only block
            skipped = f"infeasible: {error}"
            folded = Folded(None, {}, block.usable())
        log.add(block, folded)
        total = _added(total, folded.partial)
        for name, value in folded.extra.items():
            extra[name] = extra[name] + value if name in extra else value
    metrics = log.metrics(now, sent, state.w) | ({"lost_states": fed.store.lost} if fed.store.lost else {})

    if total is None:  # nothing usable, or too little for the rule: model, reference and momenta stay as they are
        after = replace(state, t=state.t + 1, attack=attack_state)
        return after, log.record(after.t, {**metrics, "skipped": skipped}, None)
    step, aggregate, rule_metrics = rule.finish(state.aggregate, plan, total)
    sums = {**extra, "delta": total.total.double(), "count": torch.tensor(float(total.count))}
    if gradient is not None:
        sums["gradient"] = gradient
    step, correction = correct.server_finish(state.correction, sums, step, fed.setting, now)
    w, server, evaluate = fed.algorithm.server.update(state.server, step, state.w, now)
    check_finite(fed, w, state.t + 1)
    check_state(state.t + 1, correction=correction, aggregate=aggregate, server=server)
    fed.store.commit()
    buffers = (extra[BUFFERS] / total.count).float() if state.buffers is not None else None
    after = FederationState(state.t + 1, w, correction, aggregate, server, attack_state, evaluate, buffers)
    metrics |= {**_step_metrics(step, total), **rule_metrics, **_state_norms(correction)}
    return after, log.record(after.t, metrics, total)


def sample(fed: Federation, now: Now) -> tuple[int, ...]:
    """The clients of this round, without replacement, in order of their number."""
    total, size = fed.setting.clients, fed.setting.per_round
    if size == total:
        return tuple(range(total))
    return tuple(sorted(now.rng("sample").choice(total, size, replace=False).tolist()))


def fold(fed: Federation, plan: Any, block: Sent) -> Folded:
    """Drop what is not finite, fold the rest, and stage the state of the clients that were used."""
    used = block.usable()
    updates = block.updates if used.all() else block.updates.select(used)
    for m, keep, state in zip(block.updates.client.tolist(), used.tolist(), block.states, strict=True):
        if keep:
            fed.store.stage(m, state)
    if not len(updates):
        return Folded(None, {}, used)
    extra = {name: value.sum(0).double() for name, value in updates.extra.items()}
    extra["steps"] = updates.steps.sum().double()
    return Folded(_apart(fed.algorithm.aggregate.fold(plan, updates), updates), extra, used)


def _apart(partial: Partial, block: Updates) -> Partial:
    """A partial without views of its block: the block's memory is used again when the next one is asked for."""
    taken = {value.untyped_storage().data_ptr() for value in (block.delta, *block.extra.values())}

    def own(value: Tensor) -> Tensor:
        return value.clone() if value.untyped_storage().data_ptr() in taken else value

    sums, columns = ({n: own(v) for n, v in part.items()} for part in (partial.sums, partial.per_client))
    return Partial(partial.count, own(partial.total), sums, columns)


def mean_gradient(fed: Federation, needs: frozenset[str], state: FederationState, now: Now, log: _Log) -> Tensor | None:
    """The mean full gradient of the cohort at w, for a correction that asks for it: one more exchange, counted."""
    if not needs & {"gradient", "weighted_gradient"}:
        return None
    w, sent = state.w, {} if state.buffers is None else {BUFFERS: state.buffers}
    total, weight = torch.zeros_like(w, dtype=torch.float64), 0.0
    for clients in fed.blocks(log.cohort):
        block = fed.worker.gradients(Job(clients, w, sent, now, (), log.attackers.intersection(clients)))
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
        now: Now,
        sent: Mapping[str, Tensor],
        cohort: tuple[int, ...],
        attackers: frozenset[int],
    ) -> None:
        self._fed, self._state, self._now, self._sent, self._cohort = fed, state, now, sent, cohort
        own = fed.experiment.attack is not None and fed.experiment.attack.knowledge == "own"
        self._attackers = attackers if own else frozenset[int]()

    def __iter__(self) -> Iterator[Job]:
        for clients in self._fed.blocks(self._cohort):
            states = tuple(self._fed.store.read(m) for m in clients)
            attackers = self._attackers.intersection(clients)
            yield Job(clients, self._state.w, self._sent, self._now, states, attackers, self._state.attack)

    def each_time(self) -> Iterable[Sent]:
        """Blocks that are trained each time they are asked for, with the same bits: no more than one is alive."""
        return _Again(self)

    def train(self, keep: bool = False) -> Iterator[Sent]:
        """Each block trained; it may be read until the next is asked for, or with `keep` as long as one likes."""
        return self._fed.executor.map(self, keep)


@dataclass(frozen=True)
class _Again:
    jobs: _Jobs

    def __iter__(self) -> Iterator[Sent]:
        return self.jobs.train()


def _added(total: Partial | None, part: Partial | None) -> Partial | None:
    if total is None or part is None:
        return total if part is None else part
    return total + part


def _step_metrics(step: Tensor, total: Partial) -> dict[str, float]:
    step_norm, mean_norm = norm(step), norm(total.mean)
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

    def add(self, block: Sent, folded: Folded) -> None:
        self.used += folded.used.tolist()
        self.loss += block.loss
        self.steps += block.steps
        self.bytes_up += block.bytes_up

    def metrics(self, now: Now, sent: Mapping[str, Tensor], w: Tensor) -> dict[str, float | int | str]:
        down = w.nbytes + sum(value.nbytes for value in sent.values())
        return {
            "sampled": len(self.cohort),
            "used": sum(self.used),
            "dropped_nonfinite": len(self.used) - sum(self.used),
            "attackers": len(self.attackers),
            "lr": now.lr,
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
