"""Plain SGD: the correction that does nothing, and costs nothing."""

from __future__ import annotations

import torch

from dragfl.corrections import NoCorrection
from dragfl.types import Affine, FederationInfo, LocalResult, NoState, RoundContext, RoundInputs


def test_nothing_is_kept_sent_or_changed() -> None:
    none, context, info = NoCorrection(), RoundContext(0, 0.1, 0), FederationInfo(2, 1, 1, (0, 2))
    step = torch.tensor([1.0, 2.0])
    state = none.init(info)
    assert state == NoState()
    assert none.fields == {}
    assert none.needs(state) == frozenset()
    assert none.broadcast(state, context, RoundInputs()) == {}
    assert none.affine({}, {}, context) == Affine(scale=1.0, prox=0.0, shift=None, anchor=0.0)
    assert none.client_finish(LocalResult(step, 5, 0.1, 20, lambda: step), {}, {}, context) == ({}, {})
    after, same = none.server_finish(state, {"delta": step, "count": torch.tensor(1.0)}, step, info, context)
    assert after is step
    assert same == state
