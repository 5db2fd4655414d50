"""Check the contract of a server step."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import torch

from dragfl.testing.checker import COMMON, Checker, federation_info
from dragfl.testing.compare import different_bits
from dragfl.types import ServerStep

SERVER_STEP: Mapping[str, str] = {
    "runs": "init and update run in every round, also for a step of zero",
    **COMMON,
    "model": "update returns the next model, a (d,) float32 tensor, finite for finite models and steps",
}


def check_server_step(server: ServerStep[Any], *, dim: int = 12, seed: int = 0, skip: Collection[str] = ()) -> None:
    """Check a server step against `SERVER_STEP`, in rounds with ordinary, zero, small and large steps.

    >>> from dragfl.server_steps import SERVER_STEPS
    >>> check_server_step(SERVER_STEPS["momentum"]())
    """
    checker = Checker(server, SERVER_STEP, federation_info(dim), seed, frozenset(skip))
    checker.send_to_worker("the server step", server)
    state = saved = checker.initial_state()
    w = checker.draw_rows("model", 0, 1)[0]
    for t, size in enumerate((1.0, 0.0, 1e-6, 1e3, 1.0)):
        case, context = f"round {t}, a step of size {size:g}", checker.context(t)
        step = size * checker.draw_rows("step", t, 1)[0]
        moved, after = checker.call_tuple(2, "update", case, state, step, w, context)
        checker.check_vector("model", moved, f"the model ({case})")
        resumed, after_resumed = checker.call_tuple(2, "update", case, checker.rebuild_state(saved), step, w, context)
        if seen := different_bits(moved, resumed, "the model"):
            checker.fail("state", f"a state rebuilt from its fields returned different bits in {seen} ({case})")
        state, saved = checker.check_state(after, "update"), after_resumed
        w = moved if isinstance(moved, torch.Tensor) and moved.shape == w.shape else w
