"""The record of a round: metrics, and one row of telemetry for each sampled client, found by its id."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from dragfl.engine.aggregation import BlockResult
from dragfl.types import Partial, RoundContext, RoundRecord


class RoundLog:
    """Collects what the record needs while results arrive, in any order."""

    def __init__(self, cohort: tuple[int, ...], attackers: frozenset[int]) -> None:
        self.cohort, self.attackers = cohort, attackers
        self.bytes_up = 0
        self._sampled = frozenset(cohort)
        self._used: dict[int, bool] = {}
        self._loss: dict[int, float] = {}
        self._steps: dict[int, int] = {}

    def accepts(self, clients: tuple[int, ...]) -> bool:
        """Whether all of these clients were sampled and none of them has a result yet."""
        given = set(clients)
        return len(given) == len(clients) and given <= self._sampled and given.isdisjoint(self._used)

    def add(self, block: BlockResult) -> None:
        self._used.update(zip(block.clients, block.used.tolist(), strict=True))
        self._loss.update(zip(block.clients, block.loss, strict=True))
        self._steps.update(zip(block.clients, block.steps, strict=True))
        self.bytes_up += block.bytes_up

    @property
    def used(self) -> int:
        """Number of usable results so far."""
        return sum(self._used.values())

    def metrics(self, context: RoundContext, broadcast: Mapping[str, Tensor], w: Tensor) -> dict[str, Any]:
        used, missing = self.used, len(self.cohort) - len(self._used)
        losses = [self._loss[m] for m in self.cohort if m in self._loss]
        down = w.nbytes + sum(value.nbytes for value in broadcast.values())
        return {
            "sampled": len(self.cohort),
            "used": used,
            "dropped_nonfinite": len(self._used) - used,
            "attackers": len(self.attackers),
            "lr": context.lr,
            "train_loss": sum(losses) / len(losses) if losses else float("nan"),
            "bytes_down": down * len(self.cohort),
            "bytes_up": self.bytes_up,
        } | ({"missing": missing} if missing else {})

    def record(
        self, round: int, metrics: Mapping[str, Any], total: Partial | None, missing: Mapping[int, str]
    ) -> RoundRecord:
        """The record; `missing` says why clients have no result, where that is known."""
        clients: dict[str, list[Any]] = {
            "client": list(self.cohort),
            "attacker": [m in self.attackers for m in self.cohort],
            "dropped": [not self._used.get(m, False) for m in self.cohort],
            "steps": [self._steps.get(m, 0) for m in self.cohort],
            "loss": [_short(self._loss.get(m, float("nan"))) for m in self.cohort],
        }
        if missing:
            clients["reason"] = [missing.get(m) for m in self.cohort]
        used = [m for m, usable in self._used.items() if usable]  # in the order of arrival, as the columns are
        for name, values in (total.per_client if total else {}).items():
            column = dict(zip(used, values.tolist(), strict=True))
            clients[name] = [_short(column[m]) if m in column else None for m in self.cohort]
        return RoundRecord(round, {name: _json_number(value) for name, value in metrics.items()}, clients, {})


def _short(value: float) -> float | None:
    """Six digits; None for NaN and infinities, which JSON does not have."""
    number = float(f"{value:.6g}")
    return number if abs(number) < float("inf") else None


def _json_number(value: Any) -> Any:
    """NaN and infinities as strings, which JSON does not have as numbers; 0-d tensors as floats."""
    value = value if isinstance(value, int | float | str) else float(value)
    return value if not isinstance(value, float) or abs(value) < float("inf") else str(value)
