"""A federation: what is fixed for a run, and the state that each round changes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

from torch import Tensor

from dragfl.arithmetic import norm
from dragfl.engine import calls
from dragfl.engine.adversary import Adversary
from dragfl.engine.backends import Backend, ServerBackend
from dragfl.engine.client_store import ClientStore
from dragfl.engine.iterate import Iterate
from dragfl.engine.simulator import Worker
from dragfl.schedules import Schedule
from dragfl.types import Algorithm, FederationInfo, State
from dragfl.vector import FlatModel


@dataclass(frozen=True)
class FederationState:
    """Everything a run needs to continue: saved, restored and forked as one value, with the client states."""

    t: int  # rounds completed
    w: Tensor
    correction: State
    aggregate: State
    server: State
    attack: State
    buffers: Tensor | None = None  # averaged buffers (BatchNorm), where the model has some
    iterate: State = None  # recent models, where a mean of them is evaluated
    own: Tensor | None = None  # the model that the algorithm's paper evaluates, where it is not w


class Server(Protocol):
    """What a server's round needs. `Federation` has it; so has a server without a simulator."""

    @property
    def info(self) -> FederationInfo: ...
    @property
    def algorithm(self) -> Algorithm: ...
    @property
    def adversary(self) -> Adversary | None: ...
    @property
    def seed(self) -> int: ...
    @property
    def lr(self) -> float | Schedule: ...
    @property
    def momentum(self) -> float: ...
    @property
    def availability(self) -> float: ...
    @property
    def min_replies(self) -> int: ...
    @property
    def initial_norm(self) -> float: ...
    @property
    def store(self) -> ClientStore: ...
    @property
    def backend(self) -> ServerBackend: ...
    @property
    def iterate(self) -> Iterate: ...

    def blocks(self, cohort: tuple[int, ...]) -> Iterator[tuple[int, ...]]: ...


@dataclass(frozen=True)
class Federation:
    """What is fixed for a run."""

    info: FederationInfo
    algorithm: Algorithm
    adversary: Adversary | None
    seed: int
    lr: float | Schedule  # local learning rate
    block: int  # clients trained and folded together
    kept_bytes: int  # updates that must be kept may take this much memory; more go to a temporary file
    model: FlatModel
    initial: Tensor
    initial_buffers: Tensor | None
    worker: Worker
    backend: Backend
    store: ClientStore
    iterate: Iterate  # which model is evaluated
    momentum: float = 0.0  # of local training
    availability: float = 1.0  # the probability that a sampled client takes part
    min_replies: int = 1  # a round with fewer usable results leaves the model as it is

    @cached_property
    def initial_norm(self) -> float:
        return norm(self.initial)

    def blocks(self, cohort: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
        return (cohort[a : a + self.block] for a in range(0, len(cohort), self.block))

    def start(self) -> FederationState:
        """The state before the first round."""
        parts, adversary = self.algorithm, self.adversary
        return FederationState(
            0,
            self.initial.clone(),
            calls.init(parts.correction, self.info),
            calls.init(parts.aggregate, self.info),
            calls.init(parts.server, self.info),
            calls.init(adversary.attack, self.info) if adversary else None,
            buffers=self.initial_buffers,
            iterate=self.iterate.init(self.initial),
        )

    def evaluated_model(self, state: FederationState) -> Tensor:
        """The flat model that is evaluated and saved as the result of a run."""
        return self.iterate.select(state.iterate, state.w, state.own)
