"""Parts for tests of backends, importable by worker processes as `tests.engine.backends.parts:NAME`."""

from __future__ import annotations

import os
import signal
import sys
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from dragfl.aggregates import Mean
from dragfl.types import FederationInfo, NoState, Partial, RoundContext, Updates, View

IN_WORKER = Path(sys.argv[0]).stem in ("worker_process", "default_worker")  # of the pool, of Ray


def dropout_model(shape: tuple[int, ...], classes: int) -> nn.Module:
    """A model with random numbers in its forward pass."""
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 20), nn.Dropout(0.4), nn.ReLU(), nn.Linear(20, classes))


def batch_norm_model(shape: tuple[int, ...], classes: int) -> nn.Module:
    """A model with running statistics."""
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 12), nn.BatchNorm1d(12), nn.ReLU(), nn.Linear(12, classes))


class Fragile(nn.Module):
    """Ends its worker process, or fails in it, if a file of that name is in the folder POOL_TEST."""

    def __init__(self, shape: tuple[int, ...], classes: int) -> None:
        super().__init__()
        self.layer = nn.Linear(64, classes)

    def forward(self, x: Tensor) -> Tensor:
        folder = Path(os.environ.get("POOL_TEST", "/nowhere"))
        if IN_WORKER and self.training:
            if (folder / "die always").exists():
                os.kill(os.getpid(), signal.SIGKILL)
            for once in sorted(folder.glob("die once*")):
                die_if_first(once)
            if (folder / "fail").exists():
                raise ValueError("this layer is broken")
        out: Tensor = self.layer(x.flatten(1))
        return out


def die_if_first(once: Path) -> None:
    """End this process if it is the one that removes the file."""
    with suppress(FileNotFoundError):
        once.unlink()
        os.kill(os.getpid(), signal.SIGKILL)


@dataclass(frozen=True)
class Memory:
    sent: Tensor
    rounds: int


@dataclass(frozen=True)
class AttackWithState:
    """An attack of knowledge "own" whose state is a tensor and a number."""

    strength: float = 1.0
    knowledge: str = "own"

    def init(self, info: FederationInfo) -> Memory:
        return Memory(torch.zeros(info.dim), 0)

    def craft(self, state: Memory, view: View, context: RoundContext) -> tuple[Updates, Memory]:
        assert view.w is not None
        delta = view.own.delta - self.strength * state.sent - 0.01 * state.rounds
        return Updates(delta, view.own.weight, view.own.client, view.own.extra, view.own.made), Memory(
            view.w.clone(), state.rounds + 1
        )


@dataclass(frozen=True)
class FirstOfBlock:
    """The mean of the first updates of the blocks. Its partials are views of the block they were folded from."""

    def init(self, info: FederationInfo) -> NoState:
        return NoState()

    def needs(self, state: Any) -> frozenset[str]:
        return frozenset()

    def begin(self, state: Any, context: RoundContext, given: Any, info: FederationInfo) -> Any:
        return None

    def fold(self, plan: Any, block: Updates) -> Partial:
        one = torch.ones(1, dtype=torch.float64)
        return Partial.of(block, {"first": block.delta[0], "blocks": one}, {}, block.delta[-1])

    def finish(self, state: Any, plan: Any, partial: Partial) -> Any:
        return (partial.sums["first"] / partial.sums["blocks"]).float(), state, {}


@dataclass(frozen=True)
class PlanInDict(Mean):
    """A rule whose plan is not a dataclass, so that it is not sent to worker processes."""

    def begin(self, state: Any, context: RoundContext, given: Any, info: FederationInfo) -> Any:
        return {"round": torch.tensor(float(context.t))}

    def fold(self, plan: Any, block: Updates) -> Partial:
        assert not IN_WORKER
        return super().fold(plan, replace(block, delta=block.delta * (1.0 + plan["round"])))


@dataclass(frozen=True)
class FragileMean(Mean):
    """Ends its worker process while it folds, once."""

    def fold(self, plan: Any, block: Updates) -> Partial:
        if IN_WORKER:
            die_if_first(Path(os.environ.get("POOL_TEST", "/nowhere")) / "die once folding")
        return super().fold(plan, block)


class AttackWithAttribute:
    """An attack with an attribute that a spec cannot express."""

    knowledge = "own"

    def __init__(self, factor: float = 2.0) -> None:
        self.twice = 2.0 * factor

    def init(self, info: FederationInfo) -> Any:
        return NoState()

    def craft(self, state: Any, view: View, context: RoundContext) -> tuple[Updates, Any]:
        return view.own, state
