"""What an algorithm sends and keeps, read from its parts without importing torch.

The state of a part is read from the return annotation of its `init`; `needs` and `broadcast` are called with a state
whose fields are all None. If a part does not work with such a state, they are called with a real one, which imports
torch. A test compares the result with two real rounds of every built-in algorithm.
"""

from __future__ import annotations

import dataclasses
import typing
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from dragfl.lazy import torch
from dragfl.types import Algorithm, FederationInfo, NoState, RoundContext, RoundInputs


@dataclass(frozen=True)
class Cost:
    """Communication of one client in one round, and the state kept between rounds."""

    down: int  # vectors of the model's length sent to a client, the model included
    up: int  # vectors sent back, the update included
    client: list[str]  # state of each client
    server: list[str]  # state of the server besides the model
    streams: bool  # updates are folded as they arrive; otherwise all are held at once
    passes: int  # over the updates of the first round
    root: bool  # it needs trusted data on the server


def cost_of(algorithm: Algorithm) -> Cost:
    """The cost of an algorithm in its first round."""
    try:
        return _read_cost(algorithm, _blank_state, object())
    except Exception:  # a user's own part that computes with its state in `needs` or `broadcast`
        info = FederationInfo(dim=3, clients=20, per_round=20, segments=(0, 3))
        return _read_cost(algorithm, lambda part: part.init(info), torch.ones(3))


def _read_cost(algorithm: Algorithm, make_state: Callable[[Any], Any], vector: Any) -> Cost:
    correction, rule = algorithm.correction, algorithm.aggregate
    states = [make_state(part) for part in (correction, rule, algorithm.server)]
    asked, needs = correction.needs(states[0]), rule.needs(states[1])
    inputs = RoundInputs(root=vector, mean=vector, gradient=vector)
    sent = correction.broadcast(states[0], RoundContext(0, lr=0.1, seed=0), inputs)
    uses_gradient = bool(asked & {"gradient", "weighted_gradient"})
    return Cost(
        down=1 + sum(getattr(value, "ndim", 1) > 0 for value in sent.values()),
        up=1 + sum(kind == "vector" for kind in correction.sends.values()) + uses_gradient,
        client=list(correction.fields),
        server=[field.name for state in states for field in dataclasses.fields(state)],
        streams="all" not in needs,
        passes=2 if "mean" in needs else 1,
        root=bool((asked | needs) & {"root", "directions"}),
    )


def _blank_state(part: Any) -> Any:
    kind: Any = typing.get_type_hints(type(part).init).get("return", NoState)
    return kind(**{field.name: None for field in dataclasses.fields(kind)})
