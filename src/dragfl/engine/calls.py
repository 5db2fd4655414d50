"""Calls of parts. What a user's own part returns is checked where it returns, with the name of the part and method.

A built-in part is called as it is. An exception in a user's part becomes a `PartError` with its name and line.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from dragfl.errors import PartError
from dragfl.own_code import check_finite, is_own, name_of, named_errors
from dragfl.types import (
    Affine,
    Aggregate,
    Attack,
    Correction,
    DataAttack,
    FederationInfo,
    HasReference,
    LocalResult,
    MeasuresSuccess,
    Partial,
    Plan,
    Predict,
    RoundContext,
    RoundInputs,
    ServerStep,
    State,
    Updates,
    View,
)

Tensors = Mapping[str, Tensor]


def init(part: Any, info: FederationInfo) -> State:
    """The state of a part before the first round."""
    return _state(f"{name_of(part)}.init", _call(part, "init", info)) if is_own(part) else part.init(info)


def needs(part: Any, state: State) -> frozenset[str]:
    """The inputs that a part needs in this round."""
    return frozenset(_call(part, "needs", state))


def begin(
    rule: Aggregate[Any, Any], state: State, context: RoundContext, inputs: RoundInputs, info: FederationInfo
) -> Plan:
    return _call(rule, "begin", state, context, inputs, info)


def fold(rule: Aggregate[Any, Any], plan: Plan, block: Updates) -> Partial:
    if not is_own(rule):
        return rule.fold(plan, block)
    what, k = f"{name_of(rule)}.fold", len(block)
    partial = _call(rule, "fold", plan, block)
    if not isinstance(partial, Partial):
        raise PartError(f"{what} returned a {_kind(partial)}; return Partial.of(block, sums, per_client)")
    if partial.count != k:
        raise PartError(f"{what}: count is {partial.count} for {k} updates; use Partial.of(block, sums, per_client)")
    _vector(f"{what}: total", partial.total, block.delta.shape[1:], None)
    for name, value in {**partial.sums, **partial.extra}.items():
        _tensor(f"{what}: the sum '{name}'", value)
    for name, column in partial.per_client.items():
        _vector(f"{what}: per_client['{name}']", column, (k,), None)
    missing = {"steps", *block.extra} - partial.extra.keys()
    if missing:
        raise PartError(f"{what}: extra has no {sorted(missing)}; use Partial.of(block, sums, per_client)")
    return partial


def finish(
    rule: Aggregate[Any, Any], state: State, plan: Plan, partial: Partial
) -> tuple[Tensor, State, Mapping[str, float]]:
    if not is_own(rule):
        return rule.finish(state, plan, partial)
    what = f"{name_of(rule)}.finish"
    step, after, metrics = _values(what, _call(rule, "finish", state, plan, partial), "step, state, metrics")
    _vector(f"{what}: the step", step, partial.total.shape)
    if not isinstance(metrics, Mapping):
        raise PartError(f"{what}: the metrics are a {_kind(metrics)}; return a dictionary of names and numbers")
    for name, value in metrics.items():
        if not isinstance(name, str) or not isinstance(value, int | float | np.number | Tensor):
            raise PartError(f"{what}: the metric {name!r} is a {_kind(value)}; return a number")
    return step, _state(what, after), metrics


def reference(rule: HasReference, state: State, dim: int) -> Tensor | None:
    """The reference direction that a white-box attacker knows, if there is one already."""
    direction: Tensor | None = _call(rule, "reference", state)
    if is_own(rule) and direction is not None:
        _vector(f"{name_of(rule)}.reference: the direction", direction, (dim,))
    return direction


def broadcast(correction: Correction[Any], state: State, context: RoundContext, inputs: RoundInputs) -> Tensors:
    sent = _call(correction, "broadcast", state, context, inputs)
    return _tensors(f"{name_of(correction)}.broadcast", sent) if is_own(correction) else sent


def affine(correction: Correction[Any], mine: Tensors, sent: Tensors, context: RoundContext, dim: int) -> Affine:
    found = _call(correction, "affine", mine, sent, context)
    if not is_own(correction):
        return found  # type: ignore[no-any-return]
    what = f"{name_of(correction)}.affine"
    if not isinstance(found, Affine):
        raise PartError(f"{what} returned a {_kind(found)}; return an Affine")
    for name in ("scale", "prox", "anchor"):
        value = getattr(found, name)
        if not isinstance(value, int | float) or not math.isfinite(value):
            raise PartError(f"{what}: {name} is {value!r}; give a finite number")
    if found.shift is not None:
        _vector(f"{what}: shift", found.shift, (dim,))
    return found


def client_finish(
    correction: Correction[Any], result: LocalResult, mine: Tensors, sent: Tensors, context: RoundContext
) -> tuple[Tensors, Tensors]:
    """(extras, new client state). They may be infinite only where the update itself is."""
    if not is_own(correction):
        return correction.client_finish(result, mine, sent, context)
    what = f"{name_of(correction)}.client_finish"
    returned = _call(correction, "client_finish", result, mine, sent, context)
    extra, state = _values(what, returned, "extras, client state")
    finite = bool(torch.isfinite(result.delta).all())
    return _tensors(f"{what}: extras", extra, finite), _tensors(f"{what}: client state", state, finite)


def server_finish(
    correction: Correction[Any],
    state: State,
    aggregated: Tensors,
    step: Tensor,
    info: FederationInfo,
    context: RoundContext,
) -> tuple[Tensor, State]:
    if not is_own(correction):
        return correction.server_finish(state, aggregated, step, info, context)
    what = f"{name_of(correction)}.server_finish"
    returned = _call(correction, "server_finish", state, aggregated, step, info, context)
    corrected, after = _values(what, returned, "step, state")
    _vector(f"{what}: the step", corrected, step.shape)
    return corrected, _state(what, after)


def update(
    server: ServerStep[Any], state: State, step: Tensor, w: Tensor, context: RoundContext
) -> tuple[Tensor, State]:
    if not is_own(server):
        return server.update(state, step, w, context)
    what = f"{name_of(server)}.update"
    moved, after = _values(what, _call(server, "update", state, step, w, context), "model, state")
    _vector(f"{what}: the model", moved, w.shape)
    return moved, _state(what, after)


def craft(attack: Attack[Any], state: State, view: View, context: RoundContext) -> tuple[Updates, State]:
    """(the updates that are sent, the next state). What is sent may be infinite; the server drops that."""
    if not is_own(attack):
        return attack.craft(state, view, context)
    what, own = f"{name_of(attack)}.craft", view.own
    sent, after = _values(what, _call(attack, "craft", state, view, context), "updates, state")
    if not isinstance(sent, Updates):
        raise PartError(f"{what} returned a {_kind(sent)}; return replace(view.own, delta=...)")
    _vector(f"{what}: delta", sent.delta, own.delta.shape, torch.float32, finite=False)
    _vector(f"{what}: weight", sent.weight, own.weight.shape, None, finite=False)
    if sent.extra.keys() != own.extra.keys():
        raise PartError(f"{what}: extras {sorted(sent.extra)}; return {sorted(own.extra)}, as in view.own")
    return sent, _state(what, after)


def poison(
    attack: DataAttack, x: Tensor, y: Tensor, predict: Predict | None, rng: np.random.Generator, classes: int
) -> tuple[Tensor, Tensor]:
    if not is_own(attack):
        return attack.poison(x, y, predict, rng)
    what = f"{name_of(attack)}.poison"
    inputs, labels = _values(what, _call(attack, "poison", x, y, predict, rng), "x, y")
    _tensor(f"{what}: x", inputs)
    _vector(f"{what}: x", inputs, (len(inputs), *x.shape[1:]), x.dtype)
    _vector(f"{what}: y", labels, (len(inputs),), torch.int64)
    if not len(labels) or int(labels.min()) < 0 or int(labels.max()) >= classes:
        raise PartError(f"{what}: y has {len(labels)} labels; give at least one, all in [0, {classes})")
    return inputs, labels


def success_rate(attack: MeasuresSuccess, x: Tensor, y: Tensor, predict: Predict) -> float:
    rate = _call(attack, "success_rate", x, y, predict)
    if is_own(attack) and not (isinstance(rate, int | float) and math.isfinite(rate)):
        raise PartError(f"{name_of(attack)}.success_rate returned {rate!r}; return a finite number")
    return float(rate)


def model_errors(module: nn.Module) -> AbstractContextManager[None]:
    """Name the user's own model in an exception that its code raises."""
    own = not type(module).__module__.startswith(("dragfl.", "torch."))
    return named_errors(f"model: {name_of(module)}", only_own=True) if own else nullcontext()


def _call(part: Any, method: str, *arguments: Any) -> Any:
    if not is_own(part):
        return getattr(part, method)(*arguments)
    with named_errors(f"{name_of(part)}.{method}"):
        return getattr(part, method)(*arguments)


def _kind(value: Any) -> str:
    return f"tuple of {len(value)}" if isinstance(value, tuple) else type(value).__name__


def _values(what: str, value: Any, names: str) -> tuple[Any, ...]:
    """The values of a returned tuple."""
    if not isinstance(value, tuple) or len(value) != len(names.split(", ")):
        raise PartError(f"{what} returned a {_kind(value)}; return ({names})")
    return value


def _state(what: str, state: Any) -> State:
    """A state that a checkpoint can hold."""
    if not dataclasses.is_dataclass(state) or isinstance(state, type):
        raise PartError(f"{what}: the state is a {_kind(state)}; make it a frozen dataclass, such as NoState()")
    for field in dataclasses.fields(state):
        value = getattr(state, field.name)
        if not isinstance(value, Tensor | float | int | None):
            raise PartError(f"{what}: {field.name} of the state is a {_kind(value)}; use a tensor or a number")
    return state


def _tensor(what: str, value: Any) -> None:
    if not isinstance(value, Tensor):
        raise PartError(f"{what} is a {_kind(value)}; return a tensor")


def _vector(
    what: str, value: Any, shape: tuple[int, ...], dtype: torch.dtype | None = torch.float32, *, finite: bool = True
) -> None:
    """A tensor of this shape and type, without NaN and infinities."""
    _tensor(what, value)
    if tuple(value.shape) != tuple(shape) or dtype not in (None, value.dtype):
        seen = f"{value.dtype} of shape {tuple(value.shape)}"
        raise PartError(f"{what} is {seen}; return {dtype or value.dtype} of shape {tuple(shape)}")
    if finite and value.is_floating_point():
        check_finite(what, value)


def _tensors(what: str, values: Any, finite: bool = True) -> Tensors:
    """Tensors by name."""
    if not isinstance(values, Mapping):
        raise PartError(f"{what}: a {_kind(values)}; return a dictionary of names and tensors")
    for name, value in values.items():
        _tensor(f"{what}: '{name}'", value)
        if finite and value.is_floating_point():
            check_finite(f"{what}: '{name}'", value)
    return values
