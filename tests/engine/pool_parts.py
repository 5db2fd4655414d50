"""Parts of a user's own for tests of executors, importable by worker processes: `tests.engine.pool_parts:NAME`."""

from __future__ import annotations

import os
import signal
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from dragfl.aggregates import Mean
from dragfl.types import FederationInfo, Partial, RoundContext, Updates, View

IN_WORKER = Path(sys.argv[0]).stem in ("child", "default_worker")  # of the pool, of Ray


def dropping(shape: tuple[int, ...], classes: int) -> nn.Module:
    """Draws as it computes."""
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 20), nn.Dropout(0.4), nn.ReLU(), nn.Linear(20, classes))


def normed(shape: tuple[int, ...], classes: int) -> nn.Module:
    """Keeps running statistics."""
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 12), nn.BatchNorm1d(12), nn.ReLU(), nn.Linear(12, classes))


class Fragile(nn.Module):
    """Dies, or fails, in a worker process, as the files named in the environment say."""

    def __init__(self, shape: tuple[int, ...], classes: int) -> None:
        super().__init__()
        self.layer = nn.Linear(64, classes)

    def forward(self, x: Tensor) -> Tensor:
        folder = Path(os.environ.get("POOL_TEST", "/nowhere"))
        if IN_WORKER and self.training:
            if (folder / "die always").exists():
                os.kill(os.getpid(), signal.SIGKILL)
            for once in sorted(folder.glob("die once*")):
                once.unlink()
                os.kill(os.getpid(), signal.SIGKILL)
            if (folder / "fail").exists():
                raise ValueError("this layer is broken")
        out: Tensor = self.layer(x.flatten(1))
        return out


@dataclass(frozen=True)
class Memory:
    sent: Tensor
    rounds: int


@dataclass(frozen=True)
class Remembering:
    """An attack of knowledge "own" with a state of a tensor and a number."""

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
class First:
    """A rule whose partials are views of the block they were folded from: the mean of the blocks' first updates."""

    def init(self, info: FederationInfo) -> Any:
        return None

    def needs(self, state: Any) -> frozenset[str]:
        return frozenset()

    def begin(self, state: Any, context: RoundContext, given: Any, info: FederationInfo) -> Any:
        return None

    def fold(self, plan: Any, block: Updates) -> Partial:
        one = torch.ones(1, dtype=torch.float64)
        return Partial(len(block), block.delta[-1], {"first": block.delta[0], "blocks": one}, {})

    def finish(self, state: Any, plan: Any, partial: Partial) -> Any:
        return (partial.sums["first"] / partial.sums["blocks"]).float(), None, {}


@dataclass(frozen=True)
class Weighing(Mean):
    """A rule whose plan is no dataclass, so that it stays in the process that made it."""

    def begin(self, state: Any, context: RoundContext, given: Any, info: FederationInfo) -> Any:
        return {"round": torch.tensor(float(context.t))}

    def fold(self, plan: Any, block: Updates) -> Partial:
        assert not IN_WORKER
        return super().fold(plan, replace(block, delta=block.delta * (1.0 + plan["round"])))


@dataclass(frozen=True)
class FragileMean(Mean):
    """Dies in a worker process as it folds, once."""

    def fold(self, plan: Any, block: Updates) -> Partial:
        once = Path(os.environ.get("POOL_TEST", "/nowhere")) / "die once folding"
        if IN_WORKER and once.exists():
            once.unlink()
            os.kill(os.getpid(), signal.SIGKILL)
        return super().fold(plan, block)


class Strong:
    """An attack that keeps something which no spec can spell out."""

    knowledge = "own"

    def __init__(self, factor: float = 2.0) -> None:
        self.factor = factor

    def init(self, info: FederationInfo) -> Any:
        return None

    def craft(self, state: Any, view: View, context: RoundContext) -> tuple[Updates, Any]:
        return view.own, state
