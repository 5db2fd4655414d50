"""Does a correction keep its contract?"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping

import torch
from torch import Tensor

from dragfl.testing.bench import COMMON, Bench, setting
from dragfl.testing.values import not_finite
from dragfl.types import Affine, Correction, Done, Now

CORRECTION: Mapping[str, str] = {
    "runs": "init, broadcast, affine, client_finish and server_finish run in every round, also for a client "
    "that did not move",
    "fields": "fields maps the names of a client's state to 'vector' or 'scalar'",
    **COMMON,
    "broadcast": "broadcast maps names to finite tensors",
    "affine": "affine gives an Affine: finite Python numbers scale and prox, and a shift that is None or a "
    "finite (d,) float32 tensor",
    "client state": "client_finish returns the new client state with exactly the declared fields, finite "
    "float32 tensors of shape (d,) for 'vector' and () for 'scalar'",
    "extra": "what is sent up maps names, the same for every client and round and neither 'delta' nor "
    "'count', to finite tensors of one shape",
    "step": "server_finish returns a finite (d,) float32 step",
}
Tensors = Mapping[str, Tensor]
Shapes = Mapping[str, tuple[int, ...]]


def check_correction(
    correction: Correction, *, dim: int = 6, clients: int = 3, seed: int = 0, skip: Collection[str] = ()
) -> None:
    """Check a correction against `CORRECTION`, in three rounds of local SGD on quadratics.

    >>> from dragfl.corrections import NoCorrection
    >>> check_correction(NoCorrection())
    """
    bench = Bench(correction, CORRECTION, setting(dim, clients=clients), seed, frozenset(skip))
    fields = bench.call("fields", "the part itself")
    if not isinstance(fields, Mapping) or not set(fields.values()) <= {"vector", "scalar"}:
        bench.fail("fields", f"fields is {fields!r}")
    bench.pickled("the correction", correction)
    shapes = {name: (dim,) if kind == "vector" else () for name, kind in fields.items()}
    mine: list[Tensors] = [{n: torch.zeros(s) for n, s in shapes.items()} for _ in range(clients)]
    w, state = torch.zeros(dim), bench.start()
    layouts: dict[str, Shapes] = {}
    for t in range(3):
        now = bench.now(t)
        sent = bench.call("broadcast", f"round {t}", bench.rebuilt(state), now)
        _check_tensors(bench, "broadcast", sent, f"what is sent down in round {t}")
        deltas, extras = [], []
        for m in range(clients):
            case = f"round {t}, client {m}"
            delta, extra, mine[m] = _client(bench, m, w, mine[m], sent, shapes, now, case)
            layouts[case] = {name: tuple(value.shape) for name, value in extra.items()}
            deltas.append(delta)
            extras.append(extra)
        _check_layouts(bench, layouts)
        sums = {name: torch.stack([extra[name] for extra in extras]).sum(0) for name in extras[0]}
        sums["delta"] = torch.stack(deltas).sum(0)
        sums["count"] = torch.tensor(clients, dtype=torch.float64)
        arguments = (bench.rebuilt(state), sums, sums["delta"] / clients, bench.setting, now)
        step, state = bench.answers(2, "server_finish", f"round {t}", *arguments)
        bench.vector("step", step, f"the step of round {t}")
        bench.state(state, "server_finish")
        w = w + step


def _client(
    bench: Bench, m: int, w0: Tensor, mine: Tensors, sent: Tensors, shapes: Shapes, now: Now, case: str
) -> tuple[Tensor, Tensors, Tensors]:
    """One client's round, (update, extra, new state), on F_m(w) = h_m |w - w_m|^2 / 2.

    Clients take unlike numbers of steps; in round 2 client 0 does not move.
    """
    affine = bench.call("affine", case, mine, sent, now)
    _check_affine(bench, affine, case)
    optimum, curvature, steps = bench.rows("optimum", m, 1)[0], 0.5 + m, now.steps + m
    w = w0.clone()
    for _ in range(0 if (now.t, m) == (2, 0) else steps):
        direction = affine.scale * curvature * (w - optimum) + affine.prox * (w - w0)
        w = w - now.lr * (direction if affine.shift is None else direction + affine.shift)
    done = Done(delta=w - w0, steps=steps, lr=now.lr, examples=20 + m)
    extra, new = bench.answers(2, "client_finish", case, done, mine, sent, now)
    _check_tensors(bench, "extra", extra, f"what is sent up ({case})")
    _check_tensors(bench, "client state", new, f"the new client state ({case})")
    seen = {name: tuple(value.shape) for name, value in new.items()}
    if seen != shapes:
        bench.fail("client state", f"the fields declare {dict(shapes)}, the new state has {seen} ({case})")
    for name, value in new.items():
        if value.dtype != torch.float32:
            bench.fail("client state", f"'{name}' is {value.dtype} ({case})")
    return done.delta, extra, new


def _check_affine(bench: Bench, affine: object, case: str) -> None:
    if not isinstance(affine, Affine):
        bench.crash("affine", case, TypeError(f"it returned a {type(affine).__name__}, not an Affine"))
    for name in ("scale", "prox"):
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
        if name == "extra" and key in ("delta", "count"):
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
