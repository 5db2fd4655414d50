"""The tables of an experiment: what may be set, its default, and what is checked before anything runs."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

from dragfl.errors import SpecError
from dragfl.schedules import Schedule, check_range
from dragfl.training.batches import Sampling

Range = int | tuple[int, int]


def at_least(where: str, value: float | None, low: float) -> None:
    if value is not None and not value >= low:
        raise SpecError(f"{where}: {value} is below {low:g}; give at least {low:g}")


def check_span(where: str, value: Range | None) -> None:
    low, high = value if isinstance(value, tuple) else (value, value)
    at_least(where, low, 1)
    if low is not None and high is not None and high < low:
        raise SpecError(f"{where}: the range [{low}, {high}] is empty; give [least, most]")


@dataclass(frozen=True)
class Data:
    """`[data]`"""

    dataset: Any = "digits"  # a name, or a Dataset from Python
    partition: Any = field(default_factory=lambda: {"kind": "iid"})


@dataclass(frozen=True)
class Root:
    """`[root]`: the server's trusted data, split off the training set."""

    size: int = 100
    disjoint: bool = True  # removed from the clients' data
    source: Literal["train", "test"] = "train"  # "test" repeats the authors' leak
    noise: float = 0.0  # share of root labels that are wrong
    filter: Literal["none", "confident"] = "none"  # drop doubtful samples by confident learning, before any round
    bias: float | None = None  # share of root samples that are of the `biased_class` class
    biased_class: int = 0
    accumulate: bool = False  # never clear the gradient between root steps, as the authors' code
    fixed_batch: int | None = None  # one minibatch of this size for all root steps (800 in the authors' code)

    def __post_init__(self) -> None:
        at_least("root.size", self.size, 1)
        for name, value in (("noise", self.noise), ("bias", self.bias)):
            if value is not None:
                check_range("root", name, value, 0.0, 1.0)
        at_least("root.fixed_batch", self.fixed_batch, 1)


@dataclass(frozen=True)
class Clients:
    """`[clients]`"""

    total: int = 20
    per_round: int | None = None  # default: all
    local_steps: Range | None = None  # default 5; [least, most]: fixed for each client, unequal between them
    local_epochs: Range | None = None
    batch_size: int = 20
    lr: float | Schedule = 0.1
    sampling: Sampling = "replacement"

    def __post_init__(self) -> None:
        at_least("clients.total", self.total, 1)
        at_least("clients.per_round", self.per_round, 1)
        at_least("clients.batch_size", self.batch_size, 1)
        check_range("clients", "lr", self.lr, 0.0, 1e6)
        check_span("clients.local_steps", self.local_steps)
        check_span("clients.local_epochs", self.local_epochs)
        if self.per_round is not None and self.per_round > self.total:
            raise SpecError(
                f"clients.per_round: {self.per_round} is more than clients.total = {self.total}; "
                "lower per_round or raise total"
            )
        if self.local_steps is not None and self.local_epochs is not None:
            raise SpecError("clients: both local_steps and local_epochs are given; remove one")


@dataclass(frozen=True)
class Attackers:
    """The keys of `[attack]` that are not the attack's own."""

    attackers: int | None = None  # how many
    fraction: float | None = None  # or which share of the clients
    redraw: bool = False  # draw anew every round, as the authors' code; else fixed for the run
    counted_in: Literal["all", "sampled"] | None = None  # whom they are counted among; default: the sampled if redrawn

    def __post_init__(self) -> None:
        at_least("attack.attackers", self.attackers, 0)
        if self.fraction is not None:
            check_range("attack", "fraction", self.fraction, 0.0, 1.0)
        if (self.attackers is None) == (self.fraction is None):
            found = "missing" if self.attackers is None else "given beside attack.fraction"
            raise SpecError(f"attack.attackers: {found}; say how many clients attack, or which share of them")

    @property
    def of_sampled(self) -> bool:
        """Are they counted among the sampled clients of a round?"""
        return self.redraw if self.counted_in is None else self.counted_in == "sampled"

    def drawn(self, clients: Clients) -> int:
        """How many are drawn: among the sampled where redrawn and counted there, else among all.

        Fixed attackers counted among the sampled are the same share of all clients: right on average.
        """
        sampled = clients.per_round or clients.total
        base = sampled if self.of_sampled else clients.total
        count = round((self.fraction or 0.0) * base) if self.attackers is None else self.attackers
        return round(count * clients.total / sampled) if self.of_sampled and not self.redraw else count

    def expected(self, clients: Clients) -> float:
        """The number of attackers to expect in a cohort."""
        sampled = clients.per_round or clients.total
        return self.drawn(clients) * (1.0 if self.redraw and self.of_sampled else sampled / clients.total)


@dataclass(frozen=True)
class Evaluation:
    """`[evaluation]`"""

    every: int = 10
    batch_size: int = 1000  # test samples at a time; part of the spec, since it orders the sums

    def __post_init__(self) -> None:
        at_least("evaluation.every", self.every, 1)
        at_least("evaluation.batch_size", self.batch_size, 1)


@dataclass(frozen=True)
class Checkpoint:
    """`[checkpoint]`"""

    every: int = 10

    def __post_init__(self) -> None:
        at_least("checkpoint.every", self.every, 1)


@dataclass(frozen=True)
class State:
    """`[state]`: what clients keep between rounds, where the algorithm has them keep something."""

    memory_mb: int = 1024  # if all clients' states may need more, they live in a file of the run directory
    on_missing: Literal["error", "zero"] = (
        "error"  # a state that cannot be read: stop, or go on from zeros and count it
    )

    def __post_init__(self) -> None:
        at_least("state.memory_mb", self.memory_mb, 0)


@dataclass(frozen=True)
class Engine:
    """`[engine]`"""

    device: str = "cpu"
    block: int | None = None  # clients folded together; default by the size of the model
    trainer: Literal["auto", "reference", "dense", "channels_last"] = "auto"  # how clients train; default by the layers
    workers: int | Literal["auto"] = "auto"  # processes that train; decides nothing but the time it takes
    executor: Literal["auto", "local", "ray"] = "auto"  # where they are: this machine, or a Ray cluster if asked for

    def __post_init__(self) -> None:
        if self.workers != "auto":
            at_least("engine.workers", self.workers, 1)
        at_least("engine.block", self.block, 1)
