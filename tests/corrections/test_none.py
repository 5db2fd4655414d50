"""Plain SGD: the correction that does nothing, and costs nothing."""

from __future__ import annotations

import torch

from dragfl.corrections import NoCorrection
from dragfl.types import Affine, Done, Given, NoState, Now, Setting


def test_nothing_is_kept_sent_or_changed() -> None:
    none, now, setting = NoCorrection(), Now(0, 0.1, 0), Setting(2, 1, 1, (0, 2))
    step = torch.tensor([1.0, 2.0])
    state = none.init(setting)
    assert state == NoState()
    assert none.fields == {}
    assert none.needs(state) == frozenset()
    assert none.broadcast(state, now, Given()) == {}
    assert none.affine({}, {}, now) == Affine(scale=1.0, prox=0.0, shift=None, anchor=0.0)
    assert none.client_finish(Done(step, 5, 0.1, 20, lambda: step), {}, {}, now) == ({}, {})
    after, same = none.server_finish(state, {"delta": step, "count": torch.tensor(1.0)}, step, setting, now)
    assert after is step
    assert same == state
