"""Flower's differential privacy around and below a drop-in strategy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message
from flwr.clientapp.mod import LocalDpMod, fixedclipping_mod
from flwr.serverapp.strategy import (
    DifferentialPrivacyClientSideFixedClipping,
    DifferentialPrivacyServerSideFixedClipping,
)
from torch import Tensor

from dragfl.flower import AlgorithmStrategy, DragStrategy
from dragfl.functional import drag
from tests.flower.local_grid import LocalGrid
from tests.flower.numpy_app import (
    initial_arrays,
    make_app,
    make_grid,
    updates,
    vector,
)


def releases(strategy: AlgorithmStrategy, alpha: float, noise: float) -> list[Tensor]:
    """Three rounds of 4 nodes under server-side differential privacy, whose noise is fixed; the released models."""
    draws = np.random.default_rng(5)
    wrapper = DifferentialPrivacyServerSideFixedClipping(strategy, 1.0, 1e6, 4)

    def add_noise(arrays: ArrayRecord) -> ArrayRecord:
        noisy = {k: v.numpy() + draws.normal(size=v.shape).astype(np.float32) * noise for k, v in arrays.items()}
        return ArrayRecord({name: Array(np.asarray(value, np.float32)) for name, value in noisy.items()})

    wrapper._add_noise_to_aggregated_arrays = add_noise  # type: ignore[method-assign]
    models: list[Tensor] = []

    def keep(round: int, arrays: ArrayRecord) -> None:
        models.append(vector(arrays))

    wrapper.start(make_grid(range(4)), initial_arrays(), num_rounds=3, timeout=30, evaluate_fn=keep)  # type: ignore[arg-type]
    return models


@pytest.mark.parametrize("alpha", [1.0, 0.5])
def test_under_server_side_privacy_the_reference_comes_from_released_models(alpha: float) -> None:
    """r_1 = w_1 - w_0, r_2 = (1 - alpha) r_1 + alpha (w_2 - w_1), with w the released models."""
    strategy = DragStrategy(c=0.5, alpha=alpha)
    w0, w1, w2, _ = releases(strategy, alpha, noise=0.3)
    assert strategy._model is not None and strategy._model.before is not None
    r = strategy._model.before.aggregate.r  # of round 3
    assert torch.allclose(r, (1 - alpha) * (w1 - w0) + alpha * (w2 - w1), atol=1e-6)
    own = drag(updates(w2, range(4)), r, c=0.5)
    assert strategy._model.state.w.allclose(w2 + own, atol=1e-5)


def test_momentum_under_server_side_privacy_is_warned_about(caplog: pytest.LogCaptureFixture) -> None:
    releases(AlgorithmStrategy("fedavgm"), 1.0, noise=0.3)
    assert "m of the server still comes from the unchanged model" in caplog.text


def test_flowers_privacy_mods_run_with_drag() -> None:
    """Local differential privacy, and clipping at the client with noise at the server; updates are clipped to 1."""
    app = make_app()
    local = LocalDpMod(1.0, 1e-9, 1.0, 1e-5)
    for mod, wrapped in ((local, False), (fixedclipping_mod, True)):

        def modded(message: Message, context: Context, mod: Any = mod) -> Message:
            return mod(message, context, app) if message.metadata.message_type == "train" else app(message, context)

        strategy = DragStrategy(c=0.25)
        outer = DifferentialPrivacyClientSideFixedClipping(strategy, 1e-9, 0.05, 4) if wrapped else strategy
        grid = LocalGrid(modded, [{"partition-id": i} for i in range(4)])
        outer.start(grid, initial_arrays(), num_rounds=2, timeout=30, train_config=ConfigRecord())
        assert not strategy.refusals.counts
        assert max(strategy.records[1].clients["norm"]) < (0.051 if wrapped else 1.01)
