"""FedProx: a proximal term that holds clients near the global model.

Li, Sahu, Zaheer, Sanjabi, Talwalkar, Smith: Federated Optimization in Heterogeneous Networks, MLSys 2020.

    min_w F_m(w) + (mu/2) |w - w^t|^2,    direction = g + mu (w - w^t)

The first local step has no proximal pull, so one local step is FedAvg. (Some code bases halve mu once more; here the
gradient of the term as printed is used.)
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from dragfl.corrections.none import Tensors, no_needs, nothing_kept, nothing_sent, step_unchanged
from dragfl.schedules import check_range
from dragfl.types import Affine, Fields, RoundContext, no_state


@dataclass(frozen=True)
class FedProx:
    """Adds a proximal term that keeps clients near the global model.

    | argument | symbol |
    |---|---|
    | mu | mu >= 0 |
    """

    mu: float = 0.2

    fields: ClassVar[Fields] = {}
    sends: ClassVar[Fields] = {}
    init = no_state
    needs = no_needs
    broadcast = nothing_sent
    client_finish = nothing_kept
    server_finish = step_unchanged

    def __post_init__(self) -> None:
        check_range("fedprox", "mu", self.mu, 0.0, 1e6)

    def affine(self, mine: Tensors, sent: Tensors, context: RoundContext) -> Affine:
        return Affine(prox=self.mu)
