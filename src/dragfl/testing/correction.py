"""Does a correction keep its contract?"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from typing import Any

import torch
from torch import Tensor

from dragfl.testing.bench import COMMON, Bench, info
from dragfl.testing.values import not_finite
from dragfl.types import Affine, Correction, LocalResult, RoundContext, RoundInputs, State

RESERVED = ("delta", "steps", "count", "gradient")  # what server_finish is given beside the extras
CORRECTION: Mapping[str, str] = {
    "runs": "init, broadcast, affine, client_finish and server_finish run in every round, also for a client "
    "that did not move",
    "needs": "needs() is a frozenset that holds nothing but 'gradient' or 'weighted_gradient', and 'root'",
    "fields": "fields maps the names of a client's state to 'vector' or 'scalar'",
    **COMMON,
    "broadcast": "broadcast maps names to finite tensors",
    "affine": "affine gives an Affine: finite Python numbers scale, prox and anchor, and a shift that is None or a "
    "finite (d,) float32 tensor",
    "client state": "client_finish returns the new client state with exactly the declared fields, finite "
    "float32 tensors of shape (d,) for 'vector' and () for 'scalar'",
    "extra": "what is sent up maps names, the same for every client and round and none of "
    + ", ".join(map(repr, RESERVED))
    + ", to finite tensors of one shape",
    "step": "server_finish returns a finite (d,) float32 step, though the sums it is given are float64",
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
    bench = Bench(correction, CORRECTION, info(dim, clients=clients), seed, frozenset(skip))
    fields = bench.call("fields", "the part itself")
    if not isinstance(fields, Mapping) or not set(fields.values()) <= {"vector", "scalar"}:
        bench.fail("fields", f"fields is {fields!r}")
    bench.piped("the correction", correction)
    shapes = {name: (dim,) if kind == "vector" else () for name, kind in fields.items()}
    mine: list[Tensors] = [{n: torch.zeros(s) for n, s in shapes.items()} for _ in range(clients)]
    w, state = torch.zeros(dim), bench.start()
    layouts: dict[str, Shapes] = {}
    for t in range(3):
        context, case = bench.context(t), f"round {t}"
        given = _given(bench, state, w, case)
        sent = bench.call("broadcast", case, bench.rebuilt(state), context, given)
        _check_tensors(bench, "broadcast", sent, f"what is sent down in round {t}")
        done: list[LocalResult] = []
        extras: list[Tensors] = []
        for m in range(clients):
            finished, extra, mine[m] = _client(bench, m, w, mine[m], sent, shapes, context)
            layouts[f"{case}, client {m}"] = {name: tuple(value.shape) for name, value in extra.items()}
            done.append(finished)
            extras.append(extra)
        _check_layouts(bench, layouts)
        step = torch.stack([client.delta for client in done]).mean(0)
        sums = _sums(done, extras, given)
        step, state = bench.answers(2, "server_finish", case, bench.rebuilt(state), sums, step, bench.info, context)
        bench.vector("step", step, f"the step of round {t}")
        bench.state(state, "server_finish")
        w = w + step


def _gradient(bench: Bench, m: int, w: Tensor) -> Tensor:
    """The gradient of client m's loss h_m |w - w_m|^2 / 2."""
    return (0.5 + m) * (w - bench.rows("optimum", m, 1)[0])


def _examples(m: int) -> int:
    return 20 + m


def _given(bench: Bench, state: State, w: Tensor, case: str) -> RoundInputs:
    """What the correction asks for before the local steps."""
    needs = bench.call("needs", case, state)
    if not isinstance(needs, frozenset) or not needs <= {"gradient", "weighted_gradient", "root"}:
        bench.fail("needs", f"needs() gave {needs!r} ({case})")
    clients = range(bench.info.clients)
    gradients = torch.stack([_gradient(bench, m, w) for m in clients])
    p = torch.tensor([_examples(m) if "weighted_gradient" in needs else 1.0 for m in clients])
    mean = p @ gradients / p.sum()
    root = -0.1 * mean if "root" in needs else None
    return RoundInputs(gradient=mean if needs - {"root"} else None, root=root)


def _client(
    bench: Bench, m: int, w0: Tensor, mine: Tensors, sent: Tensors, shapes: Shapes, context: RoundContext
) -> tuple[LocalResult, Tensors, Tensors]:
    """One client's round: (what it has at the end, extra, new state).

    Clients take unlike numbers of steps; in round 2 client 0 does not move.
    """
    case = f"round {context.t}, client {m}"
    affine = bench.call("affine", case, mine, sent, context)
    _check_affine(bench, affine, case)
    w, steps = w0.clone(), 5 + m
    for _ in range(0 if (context.t, m) == (2, 0) else steps):
        direction = affine.scale * _gradient(bench, m, w) + affine.anchor * _gradient(bench, m, w0)
        direction = direction + affine.prox * (w - w0)
        w = w - context.lr * (direction if affine.shift is None else direction + affine.shift)
    done = LocalResult(w - w0, steps, context.lr, _examples(m), lambda: _gradient(bench, m, w0))
    extra, new = bench.answers(2, "client_finish", case, done, mine, sent, context)
    _check_tensors(bench, "extra", extra, f"what is sent up ({case})")
    _check_tensors(bench, "client state", new, f"the new client state ({case})")
    seen = {name: tuple(value.shape) for name, value in new.items()}
    if seen != shapes:
        bench.fail("client state", f"the fields declare {dict(shapes)}, the new state has {seen} ({case})")
    for name, value in new.items():
        if value.dtype != torch.float32:
            bench.fail("client state", f"'{name}' is {value.dtype} ({case})")
    return done, extra, new


def _sums(done: list[LocalResult], extras: list[Tensors], given: RoundInputs) -> dict[str, Tensor]:
    """What server_finish is given of the cohort."""
    sums = {name: torch.stack([extra[name] for extra in extras]).sum(0).double() for name in extras[0]}
    sums["delta"] = torch.stack([client.delta for client in done]).sum(0).double()
    sums["steps"] = torch.tensor(float(sum(client.steps for client in done)))
    sums["count"] = torch.tensor(float(len(done)))
    return sums if given.gradient is None else {**sums, "gradient": given.gradient}


def _check_affine(bench: Bench, affine: object, case: str) -> None:
    if not isinstance(affine, Affine):
        bench.crash("affine", case, TypeError(f"it returned a {type(affine).__name__}, not an Affine"))
    for name in ("scale", "prox", "anchor"):
        value = getattr(affine, name)
        if not isinstance(value, float | int) or not math.isfinite(value):
            bench.fail("affine", f"{name} is {value!r} ({case})")
    if affine.shift is not None:
        bench.vector("affine", affine.shift, f"the shift ({case})")


def _check_tensors(bench: Bench, name: str, values: object, what: str) -> None:
    if not isinstance(values, Mapping):
        bench.fail(name, f"{what} is a {type(values).__name__}")
        return
    for key, value in values.items():
        if name == "extra" and key in RESERVED:
            bench.fail(name, f"{what} has a value named '{key}'")
        if not isinstance(value, Tensor):
            bench.fail(name, f"{what} has '{key}', a {type(value).__name__}")
        elif not torch.isfinite(value).all():
            bench.fail(name, f"{what} has '{key}', which holds {not_finite(value.reshape(-1))}")


def _check_layouts(bench: Bench, layouts: Mapping[str, Shapes]) -> None:
    first, *others = layouts
    for case in others:
        if layouts[case] != layouts[first]:
            bench.fail("extra", f"{first} sends up {layouts[first]}, {case} sends up {layouts[case]}")
