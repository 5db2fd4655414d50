"""The bench a part is tested on: calls are watched, values checked, failures told."""

from __future__ import annotations

import dataclasses
import multiprocessing
import random
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NoReturn

import numpy as np
import torch
from torch import Tensor

from dragfl.errors import Infeasible
from dragfl.rng import rng
from dragfl.testing.values import bits, changed, differ, is_frozen, not_finite
from dragfl.types import FederationInfo, RoundContext, State, Updates

COHORT = 7
COMMON = {
    "pure": "a call changes none of its arguments, keeps nothing on the part, leaves every global generator "
    "alone, and gives the same bits for the same arguments",
    "state": "a state is a frozen dataclass whose fields are Tensor, float, int or None, and all that a part "
    "carries from round to round, so that a run can be saved and resumed",
    "worker": "the part and what passes to and from workers can be sent through a pipe, and a copy gives the same bits",
}


class BrokenContract(AssertionError):
    """A part does not do what its contract says."""


@dataclass(frozen=True)
class Bench:
    """A part under test, its contract, and the properties that it does not promise."""

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
            who = type(self.part).__name__
            raise BrokenContract(f"{who} breaks '{name}': {seen}. The contract: {self.contract[name]}.") from cause

    def crash(self, method: str, case: str, error: Exception) -> NoReturn:
        """Raise for a call that cannot be gone on from."""
        who, contract = type(self.part).__name__, self.contract["runs"]
        seen = f"{method} raised {type(error).__name__}: {error} ({case})"
        raise BrokenContract(f"{who} breaks 'runs': {seen}. The contract: {contract}.") from error

    def call(self, method: str, case: str, *arguments: object) -> Any:
        """part.method(*arguments), twice: it may not raise, change what it was given, or answer differently.

        An attribute that is no method is read instead.
        """

        def once() -> Any:
            found = getattr(self.part, method)
            return found(*arguments) if callable(found) else found

        def world() -> dict[str, object]:
            return bits({"the part": self.part, **_named(arguments), "the global generator of": _generators()})

        before = world()
        try:
            first = once()
            after = world()
            answer = bits({"the result": first})
            second = once()
        except Infeasible:  # the one error that is an answer: too few updates for the rule
            raise
        except Exception as error:
            self.crash(method, case, error)
        if seen := changed(before, after):
            self.fail("pure", f"{method} changed {seen} ({case})")
        if seen := changed(answer, bits({"the result": second})):
            self.fail("pure", f"{method} gave other bits in {seen} when called a second time ({case})")
        return first

    def answers(self, count: int, method: str, case: str, *arguments: object) -> tuple[Any, ...]:
        """`call`, for a method that returns a tuple of so many values."""
        result = self.call(method, case, *arguments)
        if not isinstance(result, tuple) or len(result) != count:
            seen = f"{len(result)} values" if isinstance(result, tuple) else f"a {type(result).__name__}"
            self.crash(method, case, TypeError(f"it returned {seen}, not {count} values"))
        return result

    def start(self) -> State:
        """The state at the start of a run."""
        return self.state(self.call("init", "the start", self.info), "init")

    def state(self, state: State, source: str) -> State:
        """The state, checked to be one that can be saved."""
        if not is_frozen(state):
            self.fail("state", f"{source} gave a {type(state).__name__} as state, not a frozen dataclass")
            return state
        for field in dataclasses.fields(state):
            value = getattr(state, field.name)
            if not isinstance(value, Tensor | float | int | None):
                self.fail("state", f"{source} gave a state whose {field.name} is a {type(value).__name__}")
        return state

    def rebuilt(self, state: State) -> State:
        """A new state of the same fields: all that a checkpoint keeps."""
        if not is_frozen(state):
            return state
        values = {field.name: getattr(state, field.name) for field in dataclasses.fields(state)}
        try:
            return type(state)(**{n: v.clone() if isinstance(v, Tensor) else v for n, v in values.items()})
        except Exception as error:
            self.fail("state", f"{type(state).__name__} cannot be rebuilt from its fields: {error}", error)
            return state

    def vector(self, name: str, value: object, what: str) -> None:
        """Check for a finite (d,) float32 tensor."""
        if not isinstance(value, Tensor):
            self.fail(name, f"{what} is a {type(value).__name__}")
        elif value.dtype != torch.float32 or value.shape != (self.info.dim,):
            self.fail(name, f"{what} is {value.dtype} {tuple(value.shape)}, with d = {self.info.dim}")
        elif not torch.isfinite(value).all():
            self.fail(name, f"{what} holds {not_finite(value)}")

    def piped(self, what: str, value: object) -> Any:
        """The value after a journey through a pipe, as to a worker process."""
        near, far = multiprocessing.Pipe()
        try:
            near.send(value)
            copy = far.recv()
        except Exception as error:
            self.fail("worker", f"{what} cannot be sent to a worker: {error}", error)
            return value
        finally:
            near.close()
            far.close()
        if seen := differ(value, copy, what):
            self.fail("worker", f"the way to a worker changed {seen}")
        return copy

    def context(self, t: int) -> RoundContext:
        return RoundContext(t=t, lr=0.1, seed=self.seed)

    def rows(self, purpose: str, t: int = 0, count: int = COHORT) -> Tensor:
        """Updates of no special kind: normal rows of several sizes around a common direction."""
        draw = rng(self.seed, "testing", purpose, t)
        rows = draw.uniform(0.5, 2.0, (count, 1)) * (draw.normal(size=(count, self.info.dim)) + 0.3)
        return torch.from_numpy(rows.astype(np.float32))


def info(dim: int, segments: tuple[int, ...] | None = None, clients: int = 100) -> FederationInfo:
    """A setting of `dim` parameters, in two tensors unless said otherwise."""
    segments = segments or (0, *({dim // 3} - {0}), dim)
    return FederationInfo(dim=dim, clients=clients, per_round=min(COHORT, clients), segments=segments)


def updates(delta: Tensor) -> Updates:
    """Rows as the updates of clients 0, 1, ... with 20, 21, ... samples."""
    k = len(delta)
    return Updates(delta, torch.arange(20.0, 20.0 + k, dtype=torch.float64), torch.arange(k))


def _named(arguments: tuple[object, ...]) -> dict[str, object]:
    """Arguments by the name of their type, which is how the contracts speak of them."""
    names: dict[str, object] = {}
    for i, argument in enumerate(arguments):
        name = f"its {type(argument).__name__}"
        names[f"{name} (argument {i})" if name in names else name] = argument
    return names


def _generators() -> dict[str, object]:
    kind, keys, *place = np.random.get_state()
    return {"torch": torch.get_rng_state(), "numpy": (kind, keys, place), "random": hash(random.getstate())}
