"""Values and contracts shared by all packages.

An algorithm has three parts: a `Correction` (what clients do beyond SGD), an `Aggregate` (how (n, d) updates become one
step) and a `ServerStep` (how the step moves the model). A part is a frozen dataclass of hyper-parameters. Its state is
a frozen dataclass of tensors and numbers that each call takes and returns; nothing is stored on `self`.

Small optional Protocols (`RefusesAggregates`, `RefusesOptions`, `Robust`, `AssumesAttackers`, `UsesDirections`,
`HasReference`, `OwnIterate`, `DataAttack`, `FitsData`, `MeasuresSuccess`) declare what only some parts have.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from typing import Any, Literal, Protocol, TypeVar, runtime_checkable

import numpy as np

from dragfl.arithmetic import norm, row_norms
from dragfl.lazy import Tensor, torch
from dragfl.rng import Address, rng


def spans(segments: tuple[int, ...]) -> list[tuple[int, int]]:
    """(start, end) of each tensor, from the boundaries (0, ..., dim)."""
    return list(pairwise(segments))


@dataclass(frozen=True)
class Updates:
    """A block of k >= 1 client updates; `delta = w_local - w_global` points downhill."""

    delta: Tensor  # (k, d) float32
    weight: Tensor  # (k,) float64, number of samples
    client: Tensor  # (k,) int64, client ids
    extra: Mapping[str, Tensor] = field(default_factory=dict)  # what a correction sends up, leading axis k
    made: Tensor | None = None  # (k,) int64 local steps; None: one each

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
        """Select rows by a boolean mask or an index."""
        extra = {name: value[rows] for name, value in self.extra.items()}
        here = rows.to(self.client.device)  # client ids and step counts stay on the CPU
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
    """The sizes of a federation, fixed for a run and known to every part."""

    dim: int  # d, number of parameters
    clients: int  # M, all clients
    per_round: int  # S, clients sampled each round
    segments: tuple[int, ...]  # tensor boundaries in the flat vector: (0, ..., dim)
    device: str = "cpu"  # a torch device


@dataclass(frozen=True)
class RoundContext:
    """The round number, the local optimiser and the seed. `rng` is addressed by seed, purpose and round."""

    t: int  # the round, from 0
    lr: float  # the local learning rate of this round
    seed: int  # of the run
    momentum: float = 0.0  # of the clients' local steps

    def rng(self, purpose: str, *address: Address) -> np.random.Generator:
        return rng(self.seed, purpose, self.t, *address)


@dataclass(frozen=True)
class RoundInputs:
    """The inputs that a part requires with `needs()`; the others are None."""

    root: Tensor | None = None  # the update of the trusted root data
    directions: Tensor | None = None  # (K, d) the update of each class of the root data, see DirectionSettings
    mean: Tensor | None = None  # the mean update of this round
    gradient: Tensor | None = None  # the mean full gradient of the cohort at the model sent out
    model: Tensor | None = None  # the model sent out; for aggregates


@dataclass(frozen=True)
class Partial:
    """The sums of one block. Partials add; sums are float32 inside a block and float64 across blocks."""

    count: int  # rows of the block
    total: Tensor  # (d,) plain sum of the block's updates, for the mean that every rule is compared with
    sums: Mapping[str, Tensor]  # the rule's own sums
    per_client: Mapping[str, Tensor]  # (k,) telemetry, concatenated in block order
    extra: Mapping[str, Tensor] = field(default_factory=dict)  # the sum of each extra and of `steps`; see `of`

    @staticmethod
    def of(
        block: Updates,
        sums: Mapping[str, Tensor],
        per_client: Mapping[str, Tensor],
        total: Tensor | None = None,
        extra: Mapping[str, Tensor] | None = None,
    ) -> Partial:
        """The partial of a block. `total` may be passed where the rule has computed it.

        `extra` is what the correction's server half will see. It defaults to plain sums; a robust rule passes its own
        aggregate of each extra, times the number of rows.
        """
        total = block.delta.sum(0) if total is None else total
        return Partial(len(block), total, sums, per_client, plain_sums(block) if extra is None else extra)

    def __add__(self, other: Partial) -> Partial:
        return Partial(
            self.count + other.count,
            self.total.double() + other.total.double(),
            {name: value.double() + other.sums[name].double() for name, value in self.sums.items()},
            {name: torch.cat([value, other.per_client[name]]) for name, value in self.per_client.items()},
            {name: value.double() + other.extra[name].double() for name, value in self.extra.items()},
        )

    @cached_property
    def norm(self) -> float:
        """The Euclidean norm of `total`."""
        return norm(self.total)

    @property
    def mean(self) -> Tensor:
        """The plain mean update, (d,)."""
        return (self.total / self.count).float()


def plain_sums(block: Updates) -> dict[str, Tensor]:
    """The sum of each extra over the block, and of the local steps, in float64."""
    sums = {name: value.sum(0).double() for name, value in block.extra.items()}
    return sums | {"steps": block.steps.sum().double()}


@dataclass(frozen=True)
class NoState:
    """The state of a part that has none."""


def no_state(self: Any, info: FederationInfo) -> NoState:
    """`init = no_state` in the class body of such a part."""
    return NoState()


State = Any  # the state of some part: a frozen dataclass whose fields are Tensor, float, int or None
Plan = Any  # the plan of some aggregate: a frozen dataclass that is sent to every worker
StateT = TypeVar("StateT")
PlanT = TypeVar("PlanT")
Need = Literal["root", "directions", "mean", "all", "model"]
CorrectionNeed = Literal["gradient", "weighted_gradient", "root"]
Fields = Mapping[str, Literal["vector", "scalar"]]
Strength = tuple[str, float, float]  # the setting that makes an attack stronger, its lowest and highest value to try
Predict = Callable[[Tensor], Tensor]  # inputs -> class scores of the model sent out


@dataclass(frozen=True)
class Affine:
    """A local direction: scale*g(w) + anchor*g(w0) + prox*(w - w0) + shift, both gradients on the same minibatch.

    All corrections of the literature have this form, so trainers implement it once.
    """

    scale: float = 1.0  # of the gradient at the local model
    prox: float = 0.0  # of the distance from the model sent out
    shift: Tensor | None = None  # (d,) added to every local direction
    anchor: float = 0.0  # of the gradient at the model sent out


@dataclass(frozen=True)
class LocalResult:
    """The result of a client's local training, before its correction finishes."""

    delta: Tensor  # (d,)
    steps: int  # local steps made
    lr: float  # local learning rate
    examples: int  # training samples of the client
    full_gradient: Callable[[], Tensor]  # on all the client's data, at the model it was sent


class Correction(Protocol[StateT]):
    """Changes to local SGD, with the client state and the server state that belong to them."""

    @property
    def fields(self) -> Fields:
        """Layout of the state each client keeps between rounds; all zero at first."""
        ...

    @property
    def sends(self) -> Fields:
        """Layout of the extras each client sends up with its update."""
        ...

    def init(self, info: FederationInfo) -> StateT:
        """The server state before the first round."""
        ...

    def needs(self, state: StateT) -> frozenset[str]:
        """The inputs that `broadcast` requires.

        `gradient` (or `weighted_gradient`, by samples) is the cohort's mean full gradient, `root` the root update.
        """
        ...

    def broadcast(self, state: StateT, context: RoundContext, inputs: RoundInputs) -> Mapping[str, Tensor]:
        """Vectors sent down with the model; counted as bytes down."""
        ...

    def affine(self, mine: Mapping[str, Tensor], sent: Mapping[str, Tensor], context: RoundContext) -> Affine:
        """The local direction of a client, from its own state and the vectors sent down."""
        ...

    def client_finish(
        self, result: LocalResult, mine: Mapping[str, Tensor], sent: Mapping[str, Tensor], context: RoundContext
    ) -> tuple[Mapping[str, Tensor], Mapping[str, Tensor]]:
        """(extras sent up with the update, the client's new state)."""
        ...

    def server_finish(
        self, state: StateT, aggregated: Mapping[str, Tensor], step: Tensor, info: FederationInfo, context: RoundContext
    ) -> tuple[Tensor, StateT]:
        """(step, state) from what the aggregate makes of the cohort.

        `aggregated` holds sums over the cohort of every extra, of the update (`delta`) and of the local `steps`, the
        number of clients (`count`) and the mean `gradient`. Under a robust aggregate a sum is that rule's own aggregate
        of the quantity times `count`, so no client can write into the model past the rule.
        """
        ...


@runtime_checkable
class RefusesAggregates(Protocol):
    """A correction that loses its accuracy under attack with some robust aggregates, although both parts work."""

    @property
    def unsafe_with(self) -> frozenset[str]:
        """The names of these aggregates; the spec check refuses the combination."""
        ...


@runtime_checkable
class RefusesOptions(Protocol):
    """A correction or an aggregate whose formulas do not hold with some options of `[clients]`."""

    @property
    def refuses(self) -> Mapping[str, str]:
        """Option -> the reason; the spec check refuses the combination."""
        ...


class Aggregate(Protocol[StateT, PlanT]):
    """How the updates of a round become one step: needs -> begin -> fold (per block) -> + -> finish."""

    def init(self, info: FederationInfo) -> StateT:
        """The state before the first round."""
        ...

    def needs(self, state: StateT) -> frozenset[Need]:
        """The `RoundInputs` that the rule requires in this round."""
        ...

    def begin(self, state: StateT, context: RoundContext, inputs: RoundInputs, info: FederationInfo) -> PlanT:
        """What every `fold` of the round needs to know, sent to the workers."""
        ...

    def fold(self, plan: PlanT, block: Updates) -> Partial:
        """The sums of one block of updates; a pure function, called for several blocks in any order."""
        ...

    def finish(self, state: StateT, plan: PlanT, partial: Partial) -> tuple[Tensor, StateT, Mapping[str, float]]:
        """(step, next state, metrics of the round) from the sum of all partials."""
        ...


@runtime_checkable
class Robust(Protocol):
    """An aggregate that bounds the influence of malicious clients.

    `aggregates_extras`: it puts its own aggregate of every extra into `Partial.extra`. If it cannot, the spec check
    refuses corrections that send extras.
    """

    @property
    def aggregates_extras(self) -> bool:
        """Whether `Partial.extra` has the rule's own aggregate of every extra."""
        ...


@runtime_checkable
class AssumesAttackers(Protocol):
    """A robust aggregate that assumes a number of malicious updates."""

    @property
    def f(self) -> int | None:
        """None: set from the spec's number of attackers, to at most the largest f without a shortage."""
        ...

    def shortage(self, n: int) -> str | None:
        """Why the rule cannot work on n updates, or None."""
        ...


@dataclass(frozen=True)
class DirectionSettings:
    """How the server trains on each class of its root data."""

    samples: int  # root samples of a class in each local step
    steps: int | None = 1  # local steps; None: as many as a client makes
    groups: int = 128  # with more classes than this, class k belongs to group k mod groups


@runtime_checkable
class UsesDirections(Protocol):
    """An aggregate that needs `directions`: one update for each class of the root data."""

    @property
    def direction_settings(self) -> DirectionSettings:
        """How these updates are computed."""
        ...


@runtime_checkable
class HasReference(Protocol):
    """An aggregate with a reference direction that a white-box attacker may know."""

    def reference(self, state: State) -> Tensor | None:
        """(d,) the reference of this state, or None if there is none yet."""
        ...


class ServerStep(Protocol[StateT]):
    """How a step moves the model, as a pair (init, update)."""

    def init(self, info: FederationInfo) -> StateT:
        """The state before the first round."""
        ...

    def update(self, state: StateT, step: Tensor, w: Tensor, context: RoundContext) -> tuple[Tensor, StateT]:
        """(next model, next state)."""
        ...


OwnModel = Literal["client average", "mean of two"]


@runtime_checkable
class OwnIterate(Protocol):
    """A correction or aggregate whose paper evaluates another model than the one sent out next."""

    @property
    def own_iterate(self) -> OwnModel:
        """The average of the client models of the round, or the mean of the last two models."""
        ...


Knowledge = Literal["own", "colluding", "omniscient", "white_box"]


@dataclass(frozen=True)
class View:
    """The information of an attack. A field that its knowledge does not include is None.

    | knowledge | own | honest | aggregate, reference, directions |
    |---|---|---|---|
    | own | one attacker's clean update | | |
    | colluding | all attackers' clean updates | | |
    | omniscient | all attackers' clean updates | the honest updates | |
    | white_box | all attackers' clean updates | the honest updates | the defence, as a function |
    """

    own: Updates  # clean updates of the attackers
    honest: Updates | None = None  # the updates of the honest clients
    info: FederationInfo | None = None  # the sizes of the federation
    w: Tensor | None = None  # the model sent out this round, known to every client
    aggregate: Callable[[Tensor], Tensor] | None = None  # (f, d) malicious updates -> this round's step (d,)
    reference: Tensor | None = None  # the root update, or the rule's own reference direction
    directions: Tensor | None = None  # (K, d) those of the rule, where it uses them


class Attack(Protocol[StateT]):
    """The updates that malicious clients send. `craft` leaves weight and extras as they are.

    Attackers that know only themselves share no secret. Where they have a state, the engine computes the next one from
    a zero update, so it can depend on the model sent out and the round alone. An attack with the attribute `strength`,
    such as ("scale", 0.25, 16.0), can be tuned by the arena.
    """

    @property
    def knowledge(self) -> Knowledge:
        """What the attackers know; it decides which fields of the `View` are set."""
        ...

    def init(self, info: FederationInfo) -> StateT:
        """The state before the first round."""
        ...

    def craft(self, state: StateT, view: View, context: RoundContext) -> tuple[Updates, StateT]:
        """(the updates that the attackers send, next state)."""
        ...


@runtime_checkable
class DataAttack(Protocol):
    """An attack that changes the attackers' training data."""

    def poison(self, x: Tensor, y: Tensor, predict: Predict | None, rng: np.random.Generator) -> tuple[Tensor, Tensor]:
        """(inputs, labels) on which an attacker trains instead of its own x and y."""
        ...


@runtime_checkable
class FitsData(Protocol):
    """An attack whose settings depend on the dataset."""

    def for_data(self, classes: int, x: Tensor) -> Attack[Any]:
        """The attack with its settings resolved; an error if it cannot be carried out on these data."""
        ...


@runtime_checkable
class MeasuresSuccess(Protocol):
    """An attack with a success rate of its own, such as a backdoor."""

    def success_rate(self, x: Tensor, y: Tensor, predict: Predict) -> float:
        """The fraction of test samples x, y on which the attack succeeds."""
        ...


@dataclass(frozen=True)
class Algorithm:
    """Three parts under one name."""

    correction: Correction[Any]  # what clients do beyond SGD
    aggregate: Aggregate[Any, Any]  # how updates become one step
    server: ServerStep[Any]  # how the step moves the model
    name: str = "custom"  # for labels and the spec


@dataclass(frozen=True)
class RoundRecord:
    """One round, as written to `metrics.jsonl`, `clients.jsonl` and `timing.jsonl`."""

    round: int  # rounds completed, from 1
    metrics: Mapping[str, Any]  # numbers, words, or a list with one value per class; never depends on the clock
    clients: Mapping[str, list[Any]]  # per-client telemetry, one list a column
    timing: Mapping[str, float]  # seconds and memory

    @property
    def accuracy(self) -> float | None:
        """Test accuracy, where this round was evaluated."""
        value = self.metrics.get("accuracy")
        return float(value) if value is not None else None


OnRecord = Callable[[RoundRecord], None]
