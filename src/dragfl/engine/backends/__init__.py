"""Who computes the blocks of a round: this process, a pool of worker processes, or a Ray cluster, with equal bits.

What a worker computes depends on its arguments only, random draws are addressed by round and client, and the caller
adds results in block order. So it does not matter which worker runs a block, in which order, or how often.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import ClassVar, Protocol, runtime_checkable

from torch import Tensor

from dragfl.engine.aggregation import BlockResult
from dragfl.engine.client import ClientResults, TrainTask
from dragfl.engine.evaluation import Score
from dragfl.types import Plan, RoundContext, RoundRecord, Updates


class ServerBackend(Protocol):
    """What the server's half of a round asks for."""

    def gradients(self, tasks: Iterable[TrainTask]) -> Iterator[Updates]:
        """The full gradient of every client of each block at the broadcast model."""

    def train_root(self, w: Tensor, context: RoundContext, buffers: Tensor | None = None) -> Tensor:
        """The server's own update, trained on the root data."""

    def train_directions(self, w: Tensor, context: RoundContext, buffers: Tensor | None = None) -> Tensor:
        """(K, d) the update of each class of the root data, as the `direction_settings` of the aggregate ask."""

    def missing(self) -> Mapping[int, str]:
        """Why clients of this round have no result, by client; empty where every client that is asked replies."""


class Backend(ServerBackend, Protocol):
    """Tasks of one call share the model, the broadcast, the round and the attack state. Results come in task order.

    A result may be read until the next one is requested. Tasks are drawn a few ahead.
    """

    reuses_memory: ClassVar[bool]  # the next result of `train` overwrites this one; else the caller owns all of them

    def train(self, tasks: Iterable[TrainTask]) -> Iterator[ClientResults]:
        """Train each block."""

    def fold(self, tasks: Iterable[TrainTask], plan: Plan) -> Iterator[BlockResult]:
        """Train each block and fold it with the aggregate: a remote worker then returns sums only."""

    def scores(self, w: Tensor, buffers: Tensor | None = None) -> list[Score]:
        """The scores of every evaluated block, in order."""

    def close(self) -> None:
        """Release what is held between calls; the next call acquires it again."""


@runtime_checkable
class DescribesRound(Protocol):
    """A backend that knows more of a round than its results, such as the names of real clients."""

    def describe(self, record: RoundRecord) -> RoundRecord:
        """The record of the last round with what the backend knows."""
        ...
