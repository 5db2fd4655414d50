"""What holds for a part, property by property: contracts that must hold, and information about the rest."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from dragfl.errors import DragflError, Infeasible
from dragfl.functional import aggregate
from dragfl.testing.aggregate import AGGREGATE, check_aggregate
from dragfl.testing.attack import ATTACK, check_attack
from dragfl.testing.checker import BrokenContract, Checker, federation_info
from dragfl.testing.correction import CORRECTION, check_correction
from dragfl.testing.server_step import SERVER_STEP, check_server_step

CONTRACTS: dict[str, tuple[Callable[..., None], Mapping[str, str]]] = {
    "aggregate": (check_aggregate, AGGREGATE),
    "correction": (check_correction, CORRECTION),
    "server step": (check_server_step, SERVER_STEP),
    "attack": (check_attack, ATTACK),
}


@dataclass(frozen=True)
class Finding:
    """One property of a part. `holds` is None where it could not be checked."""

    name: str  # of the property
    required: bool  # a contract that must hold; otherwise information
    holds: bool | None  # None: it could not be checked
    text: str  # the property, or what was seen where it does not hold

    @property
    def failed(self) -> bool:
        return self.required and self.holds is not True


def contract_findings(part: Any, kind: str) -> Iterator[Finding]:
    """Every property of the contract. A broken one is skipped in the next pass, so that the others are seen too."""
    check, contract = CONTRACTS[kind]
    broken: dict[str, str] = {}
    while "runs" not in broken:
        try:
            check(part, skip=broken.keys())
            break
        except BrokenContract as error:
            if error.name in broken:  # a call that gave no usable result
                broken["runs"] = error.seen
            broken[error.name] = error.seen
        except Infeasible as error:  # of ordinary updates, so there is nothing more to check
            broken["runs"] = str(error)
    for name, text in contract.items():
        if name in broken:
            yield Finding(name, True, False, broken[name])
        elif "runs" in broken:
            yield Finding(name, True, None, "not checked, because the part does not run")
        else:
            yield Finding(name, True, True, text)


def aggregate_findings(rule: Any) -> Iterator[Finding]:
    """The contract, then what only some rules have."""
    yield from contract_findings(rule, "aggregate")
    checker = Checker(rule, AGGREGATE, federation_info(12), 0, frozenset())
    X, root, model = checker.draw_rows("cohort"), checker.draw_rows("root").mean(0), checker.draw_rows("model").mean(0)
    directions = checker.draw_rows("directions")

    def step(rows: Tensor, scale: float = 1.0) -> Tensor:
        return aggregate(rule, rows, root=scale * root, directions=scale * directions, model=model)

    def scaled() -> str:
        return _gap(step(2.0 * X, 2.0), 2.0 * step(X), "twice the updates do not give twice the step")

    def unanimous() -> str:
        return _gap(step(X[:1].repeat(7, 1)), X[0], "identical updates do not give that update")

    def zero() -> str:
        return _gap(step(torch.zeros_like(X)), torch.zeros(12), "zero updates do not give a step of zero")

    def bounded() -> str:
        two = replace(rule, f=2) if getattr(rule, "f", 0) is None else rule
        attacked, low, high = X.clone(), X[2:].amin(0), X[2:].amax(0)
        attacked[:2] = 1e6
        moved = aggregate(two, attacked, root=root, directions=directions, model=model)
        excess = torch.maximum(moved - high, low - moved).amax()
        return f"two of seven updates of size 1e6 move it {float(excess):.3g} outside" if excess > 1e-4 else ""

    yield information("scale", "updates of twice the size give a step of twice the size", scaled)
    yield information("unanimity", "identical updates give that update", unanimous)
    yield information("zero", "zero updates give a step of zero", zero)
    yield information("bounded", "with two attackers of seven the step is in the range of the honest updates", bounded)


def server_step_findings(server: Any) -> Iterator[Finding]:
    yield from contract_findings(server, "server step")

    def still() -> str:
        info, w = federation_info(12), torch.ones(12)
        context = Checker(server, SERVER_STEP, info, 0, frozenset()).context(0)
        moved = server.update(server.init(info), torch.zeros(12), w, context)[0]
        return _gap(moved, w, "a first step of zero moves the model")

    yield information("zero", "a first step of zero leaves the model as it is", still)


def information(name: str, text: str, gap: Callable[[], str]) -> Finding:
    """A property that need not hold; `gap` returns what was seen against it, or an empty string."""
    try:
        seen = gap()
    except (DragflError, AssertionError, RuntimeError, ValueError, TypeError) as error:
        return Finding(name, False, None, f"not checked: {error}")
    return Finding(name, False, not seen, seen or text)


def _gap(one: Tensor, other: Tensor, text: str) -> str:
    size = max(1.0, float(other.abs().max()))
    gap = float((one - other).abs().max())
    return "" if gap <= 1e-4 * size else f"{text}: they differ by {gap:.3g}"
