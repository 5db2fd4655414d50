"""The values that pass between the rooms of dragfl, and the contracts of its exchangeable parts.

An algorithm is a composition of three parts: a `Correction` (what clients do beyond SGD), an `Aggregate` (how (n, d)
updates become one step) and a `ServerStep` (how the step moves the model). A part holds hyper-parameters only and is
a frozen dataclass; its state is a frozen dataclass of tensors and numbers that goes in and comes out of each call.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from typing import Any, Literal, Protocol

import numpy as np

from dragfl.arithmetic import row_norms
from dragfl.lazy import Tensor, torch
from dragfl.rng import Address, rng


def spans(segments: tuple[int, ...]) -> list[tuple[int, int]]:
    """(start, end) of each tensor, from the boundaries (0, ..., dim)."""
    return list(pairwise(segments))


@dataclass(frozen=True)
class Updates:
    """A block of k >= 1 client results; `delta = w_local - w_global` points downhill."""

    delta: Tensor  # (k, d) float32
    weight: Tensor  # (k,) float64, number of samples
    client: Tensor  # (k,) int64
    extra: Mapping[str, Tensor] = field(default_factory=dict)  # what a correction sends up, leading axis k
    made: Tensor | None = None  # (k,) int64 local steps; one each where it is not said

    def __len__(self) -> int:
        return int(self.delta.shape[0])

    @property
    def steps(self) -> Tensor:
        """(k,) int64 local steps made by each client."""
        return torch.ones_like(self.client) if self.made is None else self.made

    @cached_property
    def norm(self) -> Tensor:
        """(k,) float64 Euclidean norms; non-finite exactly where a row holds a non-finite number."""
        return row_norms(self.delta)

    def select(self, rows: Tensor) -> Updates:
        """The rows of a boolean mask or an index."""
        extra = {name: value[rows] for name, value in self.extra.items()}
        here = rows.to(self.client.device)  # numbers of clients and steps stay on the CPU
        return Updates(self.delta[rows], self.weight[rows], self.client[here], extra, self.steps[here])

    @staticmethod
    def concat(blocks: list[Updates]) -> Updates:
        if len(blocks) == 1:
            return blocks[0]
        extra = {name: torch.cat([b.extra[name] for b in blocks]) for name in blocks[0].extra}
        return Updates(
            torch.cat([b.delta for b in blocks]),
            torch.cat([b.weight for b in blocks]),
            torch.cat([b.client for b in blocks]),
            extra,
            torch.cat([b.steps for b in blocks]),
        )


@dataclass(frozen=True)
class FederationInfo:
    """What is fixed for a run and known to every part."""

    dim: int
    clients: int  # M, in total
    per_round: int  # S, sampled each round
    segments: tuple[int, ...]  # tensor boundaries in the flat vector: (0, ..., dim)
    device: str = "cpu"


@dataclass(frozen=True)
class RoundContext:
    """This round. `rng(purpose, ...)` is addressed by seed, purpose and round."""

    t: int
    lr: float
    seed: int
    steps: int = 1  # nominal local steps

    def rng(self, purpose: str, *address: Address) -> np.random.Generator:
        return rng(self.seed, purpose, self.t, *address)


@dataclass(frozen=True)
class RoundInputs:
    """What `needs()` asked for, and nothing else."""

    root: Tensor | None = None  # the update of the trusted root data
    mean: Tensor | None = None  # the mean update of this round, from a first pass
    gradient: Tensor | None = None  # the mean full gradient of the cohort at the model sent out


@dataclass(frozen=True)
class Partial:
    """What one block folds to. Partials add; sums are float32 inside a block and float64 across blocks."""

    count: int
    total: Tensor  # (d,) sum of the block's updates, for the mean that every rule is compared with
    sums: Mapping[str, Tensor]
    per_client: Mapping[str, Tensor]  # (k,) telemetry, concatenated in block order

    @staticmethod
    def of(
        block: Updates,
        sums: Mapping[str, Tensor],
        per_client: Mapping[str, Tensor],
        total: Tensor | None = None,
    ) -> Partial:
        """The partial of a block; `total` may be given where the rule has it at hand."""
        return Partial(len(block), block.delta.sum(0) if total is None else total, sums, per_client)

    def __add__(self, other: Partial) -> Partial:
        return Partial(
            self.count + other.count,
            self.total.double() + other.total.double(),
            {name: value.double() + other.sums[name].double() for name, value in self.sums.items()},
            {name: torch.cat([value, other.per_client[name]]) for name, value in self.per_client.items()},
        )

    @property
    def mean(self) -> Tensor:
        """The plain mean update, (d,)."""
        return (self.total / self.count).float()


@dataclass(frozen=True)
class NoState:
    """The state of a part that has none."""


def no_state(self: Any, info: FederationInfo) -> NoState:
    """`init = no_state` in the class body of such a part."""
    return NoState()


State = Any  # a frozen dataclass whose fields are Tensor, float, int or None
Plan = Any  # what `begin` prepares for `fold`: a frozen dataclass, sent to every worker
Need = Literal["root", "mean", "all"]
Fields = Mapping[str, Literal["vector", "scalar"]]


@dataclass(frozen=True)
class Affine:
    """A local direction: scale*g(w) + anchor*g(w0) + prox*(w - w0) + shift, both gradients on the same minibatch.

    Every correction of the field has this form, so a trainer does it once for all of them.
    """

    scale: float = 1.0
    prox: float = 0.0
    shift: Tensor | None = None
    anchor: float = 0.0


@dataclass(frozen=True)
class LocalResult:
    """What a client has at the end of its local training."""

    delta: Tensor  # (d,)
    steps: int
    lr: float
    examples: int
    full_gradient: Callable[[], Tensor]  # of all the client's data, at the model it was sent


class Correction(Protocol):
    """What clients do beyond plain SGD, and the server state that belongs to it."""

    @property
    def fields(self) -> Fields:
        """Layout of the state each client keeps between rounds; all zero at first."""
        ...

    def init(self, info: FederationInfo) -> State: ...

    def needs(self, state: State) -> frozenset[str]:
        """What `broadcast` is to be given.

        `gradient` (or `weighted_gradient`, by samples) is the cohort's mean full gradient, `root` the root update.
        """
        ...

    def broadcast(self, state: State, context: RoundContext, given: RoundInputs) -> Mapping[str, Tensor]:
        """What is sent down beside the model; counted as bytes down."""
        ...

    def affine(self, mine: Mapping[str, Tensor], sent: Mapping[str, Tensor], context: RoundContext) -> Affine: ...

    def client_finish(
        self, done: LocalResult, mine: Mapping[str, Tensor], sent: Mapping[str, Tensor], context: RoundContext
    ) -> tuple[Mapping[str, Tensor], Mapping[str, Tensor]]:
        """(what is sent up beside the update, the client's new state)."""
        ...

    def server_finish(
        self, state: State, sums: Mapping[str, Tensor], step: Tensor, info: FederationInfo, context: RoundContext
    ) -> tuple[Tensor, State]:
        """`sums`: over the cohort, of every extra, of `delta` and of local `steps`; `count`; the mean `gradient`."""
        ...


class Aggregate(Protocol):
    """How the updates of a round become one step: needs -> begin -> fold (per block) -> + -> finish."""

    def init(self, info: FederationInfo) -> State: ...

    def needs(self, state: State) -> frozenset[Need]: ...

    def begin(self, state: State, context: RoundContext, given: RoundInputs, info: FederationInfo) -> Plan: ...

    def fold(self, plan: Plan, block: Updates) -> Partial: ...

    def finish(self, state: State, plan: Plan, partial: Partial) -> tuple[Tensor, State, Mapping[str, float]]: ...


class ServerStep(Protocol):
    """How a step moves the model, as a pair (init, update)."""

    def init(self, info: FederationInfo) -> State: ...

    def update(
        self, state: State, step: Tensor, w: Tensor, context: RoundContext
    ) -> tuple[Tensor, State, Tensor | None]:
        """(next model, state, the iterate to evaluate where that is not the next model)."""
        ...


Knowledge = Literal["own", "colluding", "omniscient", "white_box"]


@dataclass(frozen=True)
class View:
    """What an attack may see. What its knowledge does not grant is None.

    | knowledge | own | honest | aggregate, reference |
    |---|---|---|---|
    | own | one attacker's clean update | | |
    | colluding | all attackers' clean updates | | |
    | omniscient | all attackers' clean updates | the honest updates | |
    | white_box | all attackers' clean updates | the honest updates | the defence, as a function |
    """

    own: Updates
    honest: Updates | None = None
    info: FederationInfo | None = None
    w: Tensor | None = None  # the model sent out this round, which every client knows
    aggregate: Callable[[Tensor], Tensor] | None = None  # (f, d) sent by the attackers -> this round's step (d,)
    reference: Tensor | None = None  # the root update, or the reference that the rule carries from round to round


class Attack(Protocol):
    """What attackers send instead of their update. Weight and extra stay honest unless the attack says otherwise.

    Attackers that know only themselves share no secret: where they have a state, the engine asks for the next one with
    a zero update, so that it can depend on the model sent out and the round alone.
    """

    @property
    def knowledge(self) -> Knowledge: ...

    def init(self, info: FederationInfo) -> State: ...

    def craft(self, state: State, view: View, context: RoundContext) -> tuple[Updates, State]: ...


@dataclass(frozen=True)
class Algorithm:
    """Three parts under one name."""

    correction: Correction
    aggregate: Aggregate
    server: ServerStep
    name: str = "custom"


@dataclass(frozen=True)
class RoundRecord:
    """One round, as it is written to `metrics.jsonl` and `clients.jsonl`."""

    round: int  # rounds completed, from 1
    metrics: Mapping[str, float | int | str]  # never depends on the clock
    clients: Mapping[str, list[Any]]  # per-client telemetry, one list a column
    timing: Mapping[str, float]  # seconds and memory

    @property
    def accuracy(self) -> float | None:
        """Test accuracy, where this round was evaluated."""
        value = self.metrics.get("accuracy")
        return float(value) if value is not None else None


OnRecord = Callable[[RoundRecord], None]
