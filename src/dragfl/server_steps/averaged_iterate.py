"""The plain server step that reports the mean of the last two iterates, as FedExP does: its iterates oscillate.

theta^(t+1) = theta^t + lr * Delta,    reported (theta^t + theta^(t+1)) / 2
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from dragfl.schedules import Schedule, at, check_range
from dragfl.types import RoundContext, State, no_state

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class AveragedIterate:
    """Move along the step, report the mean of the last two.

    | argument | symbol |
    |---|---|
    | lr | factor on the step; a number or a schedule |
    """

    lr: float | Schedule = 1.0

    def __post_init__(self) -> None:
        check_range("server averaged_iterate", "lr", self.lr, 0.0, 1e6)

    init = no_state

    def update(
        self, state: State, step: Tensor, w: Tensor, context: RoundContext
    ) -> tuple[Tensor, State, Tensor | None]:
        w_next = w + at(self.lr, context.t) * step
        return w_next, state, 0.5 * (w + w_next)
