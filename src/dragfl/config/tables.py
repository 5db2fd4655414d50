"""The tables of a spec as dataclasses: every key, its default, and the checks that need one table only."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

from dragfl.errors import SpecError
from dragfl.schedules import Schedule, check_range
from dragfl.training.batches import Sampling

Range = int | tuple[int, int]
TARGET_METRICS = {"test": "accuracy", "validation": "validation_accuracy"}  # evaluation.target_on -> logged metric


def at_least(where: str, value: float | None, low: float) -> None:
    """Raise if a value is given and below `low`."""
    if value is not None and not value >= low:
        raise SpecError(f"{where}: {value} is below {low:g}; give at least {low:g}")


LARGEST = 10**9  # of a batch size or a number of steps: their product can still be counted


def check_size(where: str, value: int | None) -> None:
    """Raise if a number of samples or steps is given and outside 1 to 10^9."""
    at_least(where, value, 1)
    if value is not None and value > LARGEST:
        raise SpecError(f"{where}: {value} is above {LARGEST}; give a number that fits in memory")


def check_steps(where: str, value: Range | None) -> None:
    """Raise if a number, or an end of a range [least, most], is no size, or if the range is empty."""
    low, high = value if isinstance(value, tuple) else (value, value)
    check_size(where, low)
    check_size(where, high)
    if low is not None and high is not None and high < low:
        raise SpecError(f"{where}: the range [{low}, {high}] is empty; give [least, most]")


@dataclass(frozen=True)
class Top:
    """The keys outside any table."""

    name: str = "run"  # of the run and its directory
    seed: int = 0  # of all random draws
    rounds: int = 100  # number of rounds
    target_accuracy: float | None = None  # in (0, 1]; the first evaluated round that reaches it is reported
    stop_at_target: bool = False  # end the run there

    def __post_init__(self) -> None:
        at_least("rounds", self.rounds, 1)
        at_least("seed", self.seed, 0)
        if self.target_accuracy is not None and not 0.0 < self.target_accuracy <= 1.0:
            raise SpecError(f"target_accuracy: {self.target_accuracy} is outside (0, 1]; give a fraction such as 0.8")
        if self.stop_at_target and self.target_accuracy is None:
            raise SpecError("stop_at_target: true without target_accuracy; set target_accuracy too")
        if not self.name or self.name in (".", "..") or any(c in self.name for c in "/\\\0\n"):
            raise SpecError(f"name: {self.name!r} cannot name a run directory; use letters, digits, '-' and '_'")


@dataclass(frozen=True)
class Data:
    """`[data]`"""

    dataset: Any = "digits"  # a name, or a Dataset from Python
    partition: Any = field(default_factory=lambda: {"kind": "iid"})  # how training samples are distributed to clients


@dataclass(frozen=True)
class Root:
    """`[root]`: the server's trusted data."""

    size: int = 100  # number of samples
    disjoint: bool = True  # removed from the clients' data
    source: Literal["train", "test"] = "train"  # "test" repeats the leak in the authors' code
    noise: float = 0.0  # fraction of root labels that are wrong
    filter: Literal["none", "confident"] = "none"  # drop doubtful samples by confident learning before round 0
    bias: float | None = None  # fraction of root samples from `biased_class`
    biased_class: int = 0  # the class that `bias` refers to
    missing_classes: int | None = None  # so many classes, drawn at random, have no root sample
    accumulate: bool = False  # never clear the gradient between root steps, as the authors' code
    fixed_batch: int | None = None  # one minibatch of this size for all root steps (800 in the authors' code)

    def __post_init__(self) -> None:
        at_least("root.size", self.size, 1)
        for name, value in (("noise", self.noise), ("bias", self.bias)):
            if value is not None:
                check_range("root", name, value, 0.0, 1.0)
        check_size("root.fixed_batch", self.fixed_batch)
        at_least("root.missing_classes", self.missing_classes, 1)


@dataclass(frozen=True)
class Clients:
    """`[clients]`"""

    total: int = 20  # number of clients
    per_round: int | None = None  # clients sampled each round; default: all
    local_steps: Range | None = None  # SGD steps a round; default 5; [least, most]: drawn once for each client
    local_epochs: Range | None = None  # epochs instead of steps
    batch_size: int = 20  # samples of a minibatch
    lr: float | Schedule = 0.1  # local learning rate
    sampling: Sampling = "replacement"  # of minibatches: independent draws, or shuffled epochs
    momentum: float = 0.0  # of local steps; the buffer starts at zero in every round
    weight_decay: float = 0.0  # L2, of all parameters
    clip_norm: float | None = None  # largest norm of a minibatch gradient
    augment: Any = "none"  # names joined by "+", `module:function`, or a function (x, rng) -> x from Python
    availability: float = 1.0  # the probability that a sampled client takes part in a round

    def __post_init__(self) -> None:
        at_least("clients.total", self.total, 1)
        at_least("clients.per_round", self.per_round, 1)
        check_size("clients.batch_size", self.batch_size)
        check_range("clients", "lr", self.lr, 0.0, 1e6)
        check_range("clients", "momentum", self.momentum, 0.0, 1.0, open_high=True)
        check_range("clients", "weight_decay", self.weight_decay, 0.0, 1e6)
        check_range("clients", "availability", self.availability, 0.0, 1.0, open_low=True)
        if self.clip_norm is not None:
            check_range("clients", "clip_norm", self.clip_norm, 0.0, 1e30, open_low=True)
        check_steps("clients.local_steps", self.local_steps)
        check_steps("clients.local_epochs", self.local_epochs)
        if self.per_round is not None and self.per_round > self.total:
            raise SpecError(
                f"clients.per_round: {self.per_round} is more than clients.total = {self.total}; "
                "lower per_round or raise total"
            )
        if self.local_steps is not None and self.local_epochs is not None:
            both = f"{self.local_steps}, but local_epochs = {self.local_epochs} is given too"
            raise SpecError(f"clients.local_steps: {both}; remove one")


@dataclass(frozen=True)
class Attackers:
    """The keys of `[attack]` that every attack has: the malicious clients and what they forge."""

    attackers: int | None = None  # number of malicious clients
    fraction: float | None = None  # fraction of malicious clients, instead of their number
    redraw: bool = False  # drawn again each round, as in the authors' code; else fixed for the run
    counted_in: Literal["all", "sampled"] | None = None  # of which clients; default: "sampled" if redrawn, else "all"
    forge_extras: bool | None = None  # forge extras too; default: for colluding and omniscient attacks

    def __post_init__(self) -> None:
        at_least("attack.attackers", self.attackers, 0)
        if self.fraction is not None:
            check_range("attack", "fraction", self.fraction, 0.0, 1.0)
        if (self.attackers is None) == (self.fraction is None):
            found = "missing" if self.attackers is None else "both attack.attackers and attack.fraction are given"
            raise SpecError(f"attack.attackers: {found}; give the number of attackers or their fraction of the clients")

    @property
    def of_sampled(self) -> bool:
        """Whether number and fraction refer to the sampled clients of a round."""
        return self.redraw if self.counted_in is None else self.counted_in == "sampled"

    @property
    def drawn_from_cohort(self) -> bool:
        """Whether each round draws its attackers from its cohort, so that every cohort has the same number of them."""
        return self.redraw and self.of_sampled

    def drawn(self, clients: Clients) -> int:
        """The number of attackers to draw: from the cohort if redrawn and counted in it, else from all clients.

        Fixed attackers counted in the cohort are the same fraction of all clients, which is right on average.
        """
        sampled = clients.per_round or clients.total
        base = sampled if self.of_sampled else clients.total
        count = round((self.fraction or 0.0) * base) if self.attackers is None else self.attackers
        return round(count * clients.total / sampled) if self.of_sampled and not self.redraw else count


@dataclass(frozen=True)
class Evaluation:
    """`[evaluation]`"""

    every: int = 10  # evaluate every this many rounds, and after the last one
    batch_size: int = 1000  # test samples at a time; it orders the sums, so it is part of the spec
    iterate: Literal["last", "average", "ema", "own"] = "last"  # the model that is evaluated and saved
    window: int = 2  # models in "average"
    decay: float = 0.9  # of "ema"
    validation: float = 0.0  # fraction of the training data held out, before root data and partition
    target_on: Literal["test", "validation"] = "test"  # the data of target_accuracy

    def __post_init__(self) -> None:
        at_least("evaluation.every", self.every, 1)
        at_least("evaluation.batch_size", self.batch_size, 1)
        at_least("evaluation.window", self.window, 1)
        check_range("evaluation", "decay", self.decay, 0.0, 1.0, open_high=True)
        check_range("evaluation", "validation", self.validation, 0.0, 1.0, open_high=True)
        if self.target_on == "validation" and not self.validation:
            raise SpecError("evaluation.target_on: 'validation' without validation data; set evaluation.validation too")

    @property
    def target_metric(self) -> str:
        return TARGET_METRICS[self.target_on]


@dataclass(frozen=True)
class Checkpoint:
    """`[checkpoint]`"""

    every: int = 10  # write one every this many rounds, and after the last one

    def __post_init__(self) -> None:
        at_least("checkpoint.every", self.every, 1)


@dataclass(frozen=True)
class State:
    """`[state]`: the client states of algorithms that have them."""

    memory_mb: int = 1024  # if all states may need more, they are kept in a file of the run directory
    on_missing: Literal["error", "zero"] = "error"  # an unreadable state: stop the run, or use zeros and count it

    def __post_init__(self) -> None:
        at_least("state.memory_mb", self.memory_mb, 0)


@dataclass(frozen=True)
class Engine:
    """`[engine]`"""

    device: str = "cpu"  # a torch device
    block: int | None = None  # clients trained and folded together; default by the sizes of model and cohort
    trainer: Literal["auto", "reference", "dense", "channels_last"] = "auto"  # auto: by the layers of the model
    workers: int | Literal["auto"] = "auto"  # processes that train; does not change the result
    executor: Literal["auto", "local", "ray", "flower"] = "auto"  # where clients train; does not change the result

    def __post_init__(self) -> None:
        if self.workers != "auto":
            at_least("engine.workers", self.workers, 1)
        at_least("engine.block", self.block, 1)


@dataclass(frozen=True)
class Flower:
    """`[flower]`: a federation on Flower, with engine.executor = "flower" or deployed."""

    deadline: float = 600.0  # seconds a round; a client that has not replied by then is left out
    min_replies: int = 1  # a round with fewer usable replies leaves the model as it is
    min_nodes: int | None = None  # nodes that must be connected before the first round; default: clients.total
    wait: float = 600.0  # seconds to wait for them
    max_norm: float | None = None  # an update with a larger norm is refused
    data: Literal["partition", "own"] = "partition"  # nodes hold parts of data.dataset, or data of their own
    secure: bool = True  # TLS and node authentication of a federation on this machine

    def __post_init__(self) -> None:
        check_range("flower", "deadline", self.deadline, 0.0, 1e9, open_low=True)
        check_range("flower", "wait", self.wait, 0.0, 1e9)
        at_least("flower.min_replies", self.min_replies, 1)
        at_least("flower.min_nodes", self.min_nodes, 1)
        if self.max_norm is not None:
            check_range("flower", "max_norm", self.max_norm, 0.0, 1e30, open_low=True)
