"""Calls the methods of a part under test, checks purity and values, and raises `BrokenContract`."""

from __future__ import annotations

import dataclasses
import multiprocessing
import random
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, NoReturn

import numpy as np
import torch
from torch import Tensor

from dragfl.errors import Infeasible, PartError
from dragfl.own_code import name_of
from dragfl.rng import rng
from dragfl.testing.compare import changed_paths, describe_non_finite, different_bits, is_frozen_dataclass, snapshot
from dragfl.types import FederationInfo, RoundContext, State, Updates

COHORT = 7
COMMON = {
    "pure": "a call changes none of its arguments, stores nothing on the part, uses no global random generator, and "
    "returns the same bits for the same arguments",
    "state": "a state is a frozen dataclass whose fields are Tensor, float, int or None, and holds everything that a "
    "part keeps between rounds, so that a run can be saved and resumed",
    "worker": "the part and the values exchanged with workers survive a pipe, and a copy returns the same bits",
}


class BrokenContract(AssertionError):
    """A part violates its contract: the name of the property, and what was seen."""

    def __init__(self, who: str, name: str, seen: str, contract: str) -> None:
        super().__init__(f"{who} breaks '{name}': {seen}. The contract: {contract}.")
        self.name, self.seen = name, seen


@dataclass(frozen=True)
class Checker:
    """A part under test, its contract, and the properties to skip."""

    part: Any
    contract: Mapping[str, str]
    info: FederationInfo
    seed: int
    skip: frozenset[str]

    def __post_init__(self) -> None:
        unknown = self.skip - self.contract.keys()
        if unknown:
            raise ValueError(f"skip names {sorted(unknown)}; the properties are {', '.join(self.contract)}")

    def fail(self, name: str, seen: str, cause: BaseException | None = None) -> None:
        """Raise, unless the property is skipped."""
        if name not in self.skip:
            raise BrokenContract(self.who, name, seen, self.contract[name]) from cause

    def fail_call(self, method: str, case: str, error: Exception) -> NoReturn:
        """Raise for a call without a usable result, also if 'runs' is skipped."""
        seen = f"{method} raised {type(error).__name__}: {error} ({case})"
        raise BrokenContract(self.who, "runs", seen, self.contract["runs"]) from error

    @property
    def who(self) -> str:
        """The name of the part in messages: of its function or class."""
        return name_of(self.part) if hasattr(self.part, "described") else type(self.part).__name__

    def call(self, method: str, case: str, *arguments: object, returns: type = object) -> Any:
        """Call part.method(*arguments) twice: it may not raise, change its arguments, or return different values.

        An attribute that is not a method is read instead.
        """

        def once() -> Any:
            attribute = getattr(self.part, method)
            return attribute(*arguments) if callable(attribute) else attribute

        def everything() -> dict[str, object]:
            return snapshot({"the part": self.part, **_named(arguments), "the global generator of": _generators()})

        before = everything()
        try:
            first = once()
            after = everything()
            result = snapshot({"the result": first})
            second = once()
        except (Infeasible, PartError):  # too few updates for the rule, which is allowed; what a function returned
            raise
        except Exception as error:
            self.fail_call(method, case, error)
        if not isinstance(first, returns):
            seen = f"it returned a {type(first).__name__}, not {returns.__name__}"
            self.fail_call(method, case, TypeError(seen))
        if seen := changed_paths(before, after):
            self.fail("pure", f"{method} changed {seen} ({case})")
        if seen := changed_paths(result, snapshot({"the result": second})):
            self.fail("pure", f"{method} returned different bits in {seen} when called a second time ({case})")
        return first

    def call_tuple(self, count: int, method: str, case: str, *arguments: object) -> tuple[Any, ...]:
        """As `call`, for a method that returns a tuple of `count` values."""
        result = self.call(method, case, *arguments)
        if not isinstance(result, tuple) or len(result) != count:
            seen = f"{len(result)} values" if isinstance(result, tuple) else f"a {type(result).__name__}"
            self.fail_call(method, case, TypeError(f"it returned {seen}, not {count} values"))
        return result

    def initial_state(self) -> State:
        """The checked state at the start of a run."""
        return self.check_state(self.call("init", "the start", self.info), "init")

    def check_state(self, state: State, source: str) -> State:
        """Check that a state can be saved, and return it."""
        if not is_frozen_dataclass(state):
            self.fail("state", f"{source} returned a {type(state).__name__} as state, not a frozen dataclass")
            return state
        for field in dataclasses.fields(state):
            value = getattr(state, field.name)
            if not isinstance(value, Tensor | float | int | None):
                self.fail("state", f"{source} returned a state whose {field.name} is a {type(value).__name__}")
        return state

    def rebuild_state(self, state: State) -> State:
        """Build a new state from the fields, as a checkpoint does."""
        if not is_frozen_dataclass(state):
            return state
        values = {field.name: getattr(state, field.name) for field in dataclasses.fields(state)}
        try:
            return type(state)(**{n: v.clone() if isinstance(v, Tensor) else v for n, v in values.items()})
        except Exception as error:
            self.fail("state", f"{type(state).__name__} cannot be rebuilt from its fields: {error}", error)
            return state

    def check_vector(self, name: str, value: object, what: str) -> None:
        """Check for a finite (d,) float32 tensor."""
        if not isinstance(value, Tensor):
            self.fail(name, f"{what} is a {type(value).__name__}")
        elif value.dtype != torch.float32 or value.shape != (self.info.dim,):
            self.fail(name, f"{what} is {value.dtype} {tuple(value.shape)}, with d = {self.info.dim}")
        elif not torch.isfinite(value).all():
            self.fail(name, f"{what} holds {describe_non_finite(value)}")

    def check_needs(self, state: State, allowed: Collection[str], case: str) -> frozenset[str]:
        needs: frozenset[str] = self.call("needs", case, state)
        if not isinstance(needs, frozenset) or not needs <= set(allowed):
            self.fail("needs", f"needs() returned {needs!r} ({case})")
        return needs

    def send_to_worker(self, what: str, value: object) -> Any:
        """Return the copy of the value that a worker process receives."""
        near, far = multiprocessing.Pipe()
        try:
            near.send(value)
            copy = far.recv()
        except Exception as error:
            self.fail("worker", f"{what} cannot be sent to a worker: {error}", error)
            return value
        if seen := different_bits(value, copy, what):
            self.fail("worker", f"sending it to a worker changed {seen}")
        return copy

    def context(self, t: int) -> RoundContext:
        return RoundContext(t=t, lr=0.1, seed=self.seed)

    def draw_rows(self, purpose: str, t: int = 0, count: int = COHORT) -> Tensor:
        """Ordinary updates: normal rows of different norms around a common direction."""
        draw = rng(self.seed, "testing", purpose, t)
        rows = draw.uniform(0.5, 2.0, (count, 1)) * (draw.normal(size=(count, self.info.dim)) + 0.3)
        return torch.from_numpy(rows.astype(np.float32))


def federation_info(dim: int, segments: tuple[int, ...] | None = None, clients: int = 100) -> FederationInfo:
    """A federation with `dim` parameters, by default in two tensors."""
    segments = segments or (0, *({dim // 3} - {0}), dim)
    return FederationInfo(dim=dim, clients=clients, per_round=min(COHORT, clients), segments=segments)


def make_updates(delta: Tensor) -> Updates:
    """Rows as the updates of clients 0, 1, ... with 20, 21, ... samples, 5, 6, ... steps and one extra."""
    k = len(delta)
    weight = torch.arange(20.0, 20.0 + k, dtype=torch.float64)
    return Updates(delta, weight, torch.arange(k), {"extra": delta / 2}, torch.arange(5, 5 + k))


def _named(arguments: tuple[object, ...]) -> dict[str, object]:
    """Arguments by the name of their type, for messages."""
    names: dict[str, object] = {}
    for i, argument in enumerate(arguments):
        name = f"its {type(argument).__name__}"
        names[f"{name} (argument {i})" if name in names else name] = argument
    return names


def _generators() -> dict[str, object]:
    kind, keys, *place = np.random.get_state()
    return {"torch": torch.get_rng_state(), "numpy": (kind, keys, place), "random": hash(random.getstate())}
