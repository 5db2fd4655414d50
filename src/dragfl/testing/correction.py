"""Check the contract of a correction."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from typing import Any

import torch
from torch import Tensor

from dragfl.testing.checker import COMMON, Checker, federation_info
from dragfl.testing.compare import describe_non_finite
from dragfl.types import Affine, Correction, LocalResult, RoundContext, RoundInputs, State

RESERVED = ("delta", "steps", "count", "gradient")  # keys of server_finish's input other than the extras
CORRECTION: Mapping[str, str] = {
    "runs": "init, broadcast, affine, client_finish and server_finish run in every round, also for a client "
    "that did not move",
    "needs": "needs() is a frozenset of 'gradient' or 'weighted_gradient', and 'root'",
    "fields": "fields and sends map the names of a client's state and of its extras to 'vector' or 'scalar'",
    **COMMON,
    "broadcast": "broadcast maps names to finite tensors",
    "affine": "affine returns an Affine: finite Python numbers scale, prox and anchor, and a shift that is None or a "
    "finite (d,) float32 tensor",
    "client state": "client_finish returns the new client state with exactly the declared fields, finite "
    "float32 tensors of shape (d,) for 'vector' and () for 'scalar'",
    "extra": "client_finish returns the extras that `sends` declares, finite tensors of shape (d,) for 'vector' and () "
    "for 'scalar', with no name of " + ", ".join(map(repr, RESERVED)),
    "step": "server_finish returns a finite (d,) float32 step, although its input sums are float64",
}
Tensors = Mapping[str, Tensor]
Shapes = Mapping[str, tuple[int, ...]]


def check_correction(
    correction: Correction[Any], *, dim: int = 6, clients: int = 3, seed: int = 0, skip: Collection[str] = ()
) -> None:
    """Check a correction against `CORRECTION`, in three rounds of local SGD on quadratics.

    >>> from dragfl.corrections import NoCorrection
    >>> check_correction(NoCorrection())
    """
    checker = Checker(correction, CORRECTION, federation_info(dim, clients=clients), seed, frozenset(skip))
    fields, sends = _declared_shapes(checker, "fields"), _declared_shapes(checker, "sends")
    checker.send_to_worker("the correction", correction)
    mine: list[Tensors] = [{n: torch.zeros(s) for n, s in fields.items()} for _ in range(clients)]
    w, state = torch.zeros(dim), checker.initial_state()
    for t in range(3):
        context, case = checker.context(t), f"round {t}"
        inputs = _round_inputs(checker, state, w, case)
        sent = checker.call("broadcast", case, checker.rebuild_state(state), context, inputs)
        _check_tensors(checker, "broadcast", sent, f"the broadcast of round {t}")
        sums: dict[str, Tensor] = {} if inputs.gradient is None else {"gradient": inputs.gradient}
        for m in range(clients):
            result, extra, mine[m] = _train_client(checker, m, w, mine[m], sent, context)
            _check_tensors(checker, "client state", mine[m], f"the new client state ({case}, client {m})", fields)
            _check_tensors(checker, "extra", extra, f"the extras ({case}, client {m})", sends)
            summands = {"delta": result.delta, "steps": torch.tensor(result.steps), "count": torch.tensor(1), **extra}
            sums |= {name: sums.get(name, 0.0) + value.double() for name, value in summands.items()}
        step = (sums["delta"] / clients).float()
        step, state = checker.call_tuple(
            2, "server_finish", case, checker.rebuild_state(state), sums, step, checker.info, context
        )
        checker.check_vector("step", step, f"the step of round {t}")
        checker.check_state(state, "server_finish")
        w = w + step


def _gradient(checker: Checker, m: int, w: Tensor) -> Tensor:
    """The gradient of client m's loss h_m |w - w_m|^2 / 2."""
    return (0.5 + m) * (w - checker.draw_rows("optimum", m, 1)[0])


def _examples(m: int) -> int:
    return 20 + m


def _round_inputs(checker: Checker, state: State, w: Tensor, case: str) -> RoundInputs:
    """The inputs that the correction needs for its broadcast."""
    needs = checker.check_needs(state, ("gradient", "weighted_gradient", "root"), case)
    clients = range(checker.info.clients)
    gradients = torch.stack([_gradient(checker, m, w) for m in clients])
    p = torch.tensor([_examples(m) if "weighted_gradient" in needs else 1.0 for m in clients])
    mean = p @ gradients / p.sum()
    root = -0.1 * mean if "root" in needs else None
    return RoundInputs(gradient=mean if needs - {"root"} else None, root=root)


def _train_client(
    checker: Checker, m: int, w0: Tensor, mine: Tensors, sent: Tensors, context: RoundContext
) -> tuple[LocalResult, Tensors, Tensors]:
    """One client's round: (local result, extras, new state).

    Clients take different numbers of steps; in round 2 client 0 does not move.
    """
    case = f"round {context.t}, client {m}"
    affine = checker.call("affine", case, mine, sent, context, returns=Affine)
    _check_affine(checker, affine, case)
    w, steps = w0.clone(), 5 + m
    for _ in range(0 if (context.t, m) == (2, 0) else steps):
        direction = affine.scale * _gradient(checker, m, w) + affine.anchor * _gradient(checker, m, w0)
        direction = direction + affine.prox * (w - w0)
        w = w - context.lr * (direction if affine.shift is None else direction + affine.shift)
    result = LocalResult(w - w0, steps, context.lr, _examples(m), lambda: _gradient(checker, m, w0))
    extra, new = checker.call_tuple(2, "client_finish", case, result, mine, sent, context)
    return result, extra, new


def _declared_shapes(checker: Checker, name: str) -> Shapes:
    """The tensor shapes that `fields` or `sends` declares."""
    layout = checker.call(name, "the part itself")
    if not isinstance(layout, Mapping) or not set(layout.values()) <= {"vector", "scalar"}:
        checker.fail("fields", f"{name} is {layout!r}")
    return {key: (checker.info.dim,) if kind == "vector" else () for key, kind in layout.items()}


def _check_affine(checker: Checker, affine: Affine, case: str) -> None:
    for name in ("scale", "prox", "anchor"):
        value = getattr(affine, name)
        if not isinstance(value, float | int) or not math.isfinite(value):
            checker.fail("affine", f"{name} is {value!r} ({case})")
    if affine.shift is not None:
        checker.check_vector("affine", affine.shift, f"the shift ({case})")


def _check_tensors(checker: Checker, name: str, values: object, what: str, declared: Shapes | None = None) -> None:
    """Check for finite tensors and, where shapes are declared, for exactly these names, shapes and float32 values."""
    if not isinstance(values, Mapping):
        checker.fail(name, f"{what} is a {type(values).__name__}")
        return
    for key, value in values.items():
        if name == "extra" and key in RESERVED:
            checker.fail(name, f"{what} has a value named '{key}'")
        if not isinstance(value, Tensor):
            checker.fail(name, f"{what} has '{key}', a {type(value).__name__}")
        elif not torch.isfinite(value).all():
            checker.fail(name, f"{what} has '{key}', which holds {describe_non_finite(value.reshape(-1))}")
        elif name == "client state" and value.dtype != torch.float32:
            checker.fail(name, f"'{key}' is {value.dtype} in {what}")
    seen = {key: tuple(value.shape) for key, value in values.items() if isinstance(value, Tensor)}
    if declared is not None and seen != declared:
        checker.fail(name, f"{what}: declared are {dict(declared)}, client_finish returned {seen}")
