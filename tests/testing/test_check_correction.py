"""check_correction passes corrections that keep their contract and catches, by name, those that do not."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import pytest
import torch
from torch import Tensor

from dragfl.corrections import CORRECTIONS
from dragfl.testing import BrokenContract, check_correction
from dragfl.types import Affine


@pytest.mark.parametrize("name", CORRECTIONS)
def test_built_in_corrections_pass(name: str) -> None:
    check_correction(CORRECTIONS[name]())


@dataclass(frozen=True)
class Control:
    c: Tensor


class Scaffold:
    """SCAFFOLD, option II, with a count of rounds in each client: a vector and a scalar state."""

    @property
    def fields(self) -> Any:
        return {"c": "vector", "rounds": "scalar"}

    @property
    def sends(self) -> Any:
        return {"dc": "vector"}

    def init(self, info: Any) -> Any:
        return Control(torch.zeros(info.dim))

    def needs(self, state: Any) -> Any:
        return frozenset()

    def broadcast(self, state: Any, context: Any, given: Any) -> Any:
        return {"c": state.c}

    def affine(self, mine: Any, sent: Any, context: Any) -> Any:
        return Affine(shift=sent["c"] - mine["c"])

    def client_finish(self, done: Any, mine: Any, sent: Any, context: Any) -> Any:
        new = mine["c"] - sent["c"] - done.delta / (done.steps * done.lr)
        return {"dc": new - mine["c"]}, {"c": new, "rounds": mine["rounds"] + 1.0}

    def server_finish(self, state: Any, sums: Any, step: Any, info: Any, context: Any) -> Any:
        return step, Control(state.c + sums["dc"].float() / info.clients)


def test_scaffold_passes() -> None:
    check_correction(Scaffold())


def test_clients_descend_their_quadratic() -> None:
    """Local steps are what they claim: w <- w - lr * h (w - w_0), five times with h = 0.5 and lr = 0.1.

    Each step leaves 0.95 of the distance to w_0, so the second round moves 0.95^5 as far as the first. With one
    client SCAFFOLD's shift c - c_0 is zero.
    """
    seen: list[Tensor] = []

    class Watching(Scaffold):
        def server_finish(self, state: Any, sums: Any, step: Any, info: Any, context: Any) -> Any:
            seen.append(sums["delta"].clone())
            return super().server_finish(state, sums, step, info, context)

    check_correction(Watching(), clients=1, skip={"worker"})
    first, second = seen[0], seen[2]  # every call is made twice
    torch.testing.assert_close(second, first * 0.95**5, rtol=1e-5, atol=1e-7)


class BadField(Scaffold):
    fields = {"c": "matrix"}  # noqa: RUF012


class BadExtra(Scaffold):
    sends = {"dc": "list"}  # noqa: RUF012


class MutatesClient(Scaffold):
    def client_finish(self, done: Any, mine: Any, sent: Any, context: Any) -> Any:
        mine["c"].add_(1.0)
        return super().client_finish(done, mine, sent, context)


class ReplacesClient(Scaffold):
    def client_finish(self, done: Any, mine: Any, sent: Any, context: Any) -> Any:
        mine["c"] = mine["c"] + 1.0
        return super().client_finish(done, mine, sent, context)


class MutatesServer(Scaffold):
    def server_finish(self, state: Any, sums: Any, step: Any, info: Any, context: Any) -> Any:
        return step, Control(state.c.add_(sums["dc"].float()))


class ForgetsField(Scaffold):
    def client_finish(self, done: Any, mine: Any, sent: Any, context: Any) -> Any:
        extra, new = super().client_finish(done, mine, sent, context)
        return extra, {"c": new["c"]}


class WrongShape(Scaffold):
    def client_finish(self, done: Any, mine: Any, sent: Any, context: Any) -> Any:
        extra, new = super().client_finish(done, mine, sent, context)
        return extra, {**new, "rounds": torch.ones(1)}


class WrongDtype(Scaffold):
    def client_finish(self, done: Any, mine: Any, sent: Any, context: Any) -> Any:
        extra, new = super().client_finish(done, mine, sent, context)
        return extra, {**new, "c": new["c"].double()}


class InconsistentExtra(Scaffold):
    def client_finish(self, done: Any, mine: Any, sent: Any, context: Any) -> Any:
        extra, new = super().client_finish(done, mine, sent, context)
        return (extra if done.examples != 21 else {"other": extra["dc"]}), new


class ShadowsDelta(Scaffold):
    def client_finish(self, done: Any, mine: Any, sent: Any, context: Any) -> Any:
        extra, new = super().client_finish(done, mine, sent, context)
        return {**extra, "delta": done.delta}, new


class DividesByMovement(Scaffold):
    def client_finish(self, done: Any, mine: Any, sent: Any, context: Any) -> Any:
        extra, new = super().client_finish(done, mine, sent, context)
        return {"dc": extra["dc"] / done.delta.norm()}, new


class StateIsDict(Scaffold):
    def init(self, info: Any) -> Any:
        return {"c": torch.zeros(info.dim)}


class SendsNumber(Scaffold):
    def broadcast(self, state: Any, context: Any, given: Any) -> Any:
        return {"c": state.c, "round": context.t}


class WrongAffine(Scaffold):
    def affine(self, mine: Any, sent: Any, context: Any) -> Any:
        return replace(super().affine(mine, sent, context), shift=torch.zeros(1))


class NotAffine(Scaffold):
    def affine(self, mine: Any, sent: Any, context: Any) -> Any:
        return 1.0, 0.0, None


class KeepsDouble(Scaffold):
    """The sums over a cohort are float64; the broadcast must be float32 again."""

    def server_finish(self, state: Any, sums: Any, step: Any, info: Any, context: Any) -> Any:
        return step, Control(state.c + sums["dc"] / info.clients)


class UnaskedGradient(Scaffold):
    def broadcast(self, state: Any, context: Any, given: Any) -> Any:
        return {"c": state.c + given.gradient}


class WrongNeeds(Scaffold):
    def needs(self, state: Any) -> Any:
        return frozenset({"mean"})


class NoStep(Scaffold):
    def server_finish(self, state: Any, sums: Any, step: Any, info: Any, context: Any) -> Any:
        return super().server_finish(state, sums, step, info, context)[1]


BROKEN = [
    (BadField, "fields", r"fields is \{'c': 'matrix'\}"),
    (BadExtra, "fields", r"sends is \{'dc': 'list'\}"),
    (MutatesClient, "pure", r"client_finish changed its dict\['c'\]"),
    (ReplacesClient, "pure", r"client_finish changed its dict\['c'\]"),
    (MutatesServer, "pure", r"server_finish changed its Control\.c"),
    (ForgetsField, "client state", r"declared are .*'rounds': \(\).*, client_finish returned \{'c': \(6,\)\}"),
    (WrongShape, "client state", r"client_finish returned .*'rounds': \(1,\)"),
    (WrongDtype, "client state", r"'c' is torch.float64"),
    (
        InconsistentExtra,
        "extra",
        r"the extras \(round 0, client 1\): declared are .*, client_finish returned \{'other': \(6,\)\}",
    ),
    (ShadowsDelta, "extra", r"has a value named 'delta'"),
    (DividesByMovement, "extra", r"round 2, client 0\) has 'dc', which holds 6 non-finite numbers"),
    (StateIsDict, "state", r"init returned a dict"),
    (SendsNumber, "broadcast", r"has 'round', a int"),
    (WrongAffine, "affine", r"the shift .* is torch.float32 \(1,\), with d = 6"),
    (NotAffine, "runs", r"affine raised TypeError: it returned a tuple, not Affine"),
    (KeepsDouble, "affine", r"the shift \(round 1, client 0\) is torch.float64"),
    (UnaskedGradient, "runs", r"broadcast raised TypeError"),
    (WrongNeeds, "needs", r"needs\(\) returned frozenset\(\{'mean'\}\)"),
    (NoStep, "runs", r"it returned a Control, not 2 values"),
]


@pytest.mark.parametrize(("part", "name", "seen"), BROKEN, ids=lambda value: getattr(value, "__name__", None))
def test_broken_corrections_fail_by_name(part: type[Scaffold], name: str, seen: str) -> None:
    with pytest.raises(BrokenContract, match=seen) as caught:
        check_correction(part())
    assert str(caught.value).startswith(f"{part.__name__} breaks '{name}': ")
