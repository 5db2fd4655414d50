"""DRAG and BR-DRAG as strategies for existing Flower apps: `DragStrategy(c=0.25)` instead of `FedAvg()`."""

from __future__ import annotations

from typing import Literal, Unpack

from dragfl.flower.strategy import AlgorithmStrategy, Options, RootFunction
from dragfl.schedules import Schedule


class DragStrategy(AlgorithmStrategy):
    """DRAG (Zhu et al. 2023): modifies every update towards a reference direction, by its degree of divergence.

    The reference is a moving average of past steps, in the first round the mean update; no node is asked twice. Under
    differential privacy on the server it is computed from the released models.

    Parameters
    ----------
    c : float | Schedule
        How strongly updates are modified, in [0, 1]; 0 is the mean update.
    alpha : float | Schedule
        The weight of the last step in the reference, in (0, 1].
    divergence : {"linear", "angle", "shallow"}
        The form of the degree of divergence.
    variant : {"paper", "authors"}
        The formulas of the paper, or the arithmetic of the authors' code.
    bootstrap : {"two_pass", "fedavg"}
        The first round: take the mean update as the reference, or modify nothing.
    **options
        `seed`, `max_norm`, `min_replies`, `statistics`, `server_lr` and the arguments of Flower's FedAvg; see
        `AlgorithmStrategy`.
    """

    def __init__(
        self,
        c: float | Schedule = 0.25,
        alpha: float | Schedule = 1.0,
        *,
        divergence: Literal["linear", "angle", "shallow"] = "linear",
        variant: Literal["paper", "authors"] = "paper",
        bootstrap: Literal["two_pass", "fedavg"] = "two_pass",
        **options: Unpack[Options],
    ) -> None:
        super().__init__(
            "drag", c=c, alpha=alpha, divergence=divergence, variant=variant, bootstrap=bootstrap, **options
        )


class BRDragStrategy(AlgorithmStrategy):
    """BR-DRAG (Zhu et al. 2023): DRAG on normalised updates with a trusted reference, for federations under attack.

    For c <= 1/2 no set of malicious nodes moves the model by more than the server's own update.

    Parameters
    ----------
    root : (ArrayRecord, int) -> ArrayRecord | Mapping[str, ndarray | Tensor]
        Trains the arrays it is given on the server's own data and returns them, as a client does: a client's training
        function can be reused. The second argument is the round.
    c : float | Schedule
        How strongly updates are modified, in [0, 1].
    divergence : {"linear", "angle", "shallow"}
        The form of the degree of divergence.
    variant : {"paper", "authors"}
        The formulas of the paper, or every tensor separately as in the authors' code.
    **options
        `seed`, `max_norm`, `min_replies`, `statistics`, `server_lr` and the arguments of Flower's FedAvg; see
        `AlgorithmStrategy`.
    """

    def __init__(
        self,
        root: RootFunction,
        c: float | Schedule = 0.25,
        *,
        divergence: Literal["linear", "angle", "shallow"] = "linear",
        variant: Literal["paper", "authors"] = "paper",
        **options: Unpack[Options],
    ) -> None:
        super().__init__("br_drag", root=root, c=c, divergence=divergence, variant=variant, **options)
