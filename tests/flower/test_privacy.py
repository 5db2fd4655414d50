"""What docs/flower.md says of privacy: Flower's wrappers and mods run, and clients can compute DRAG themselves."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message
from flwr.clientapp.mod import LocalDpMod, adaptiveclipping_mod, fixedclipping_mod
from flwr.serverapp.strategy import (
    DifferentialPrivacyClientSideAdaptiveClipping,
    DifferentialPrivacyClientSideFixedClipping,
    DifferentialPrivacyServerSideAdaptiveClipping,
    DifferentialPrivacyServerSideFixedClipping,
)

from dragfl.flower import AlgorithmStrategy, BRDragStrategy, DragStrategy
from tests.flower.local_grid import LocalGrid
from tests.flower.numpy_app import initial_arrays, make_app, make_grid, root, start, vector

NODES, NOISE, CLIP = 4, 0.1, 0.5
PRIVACY: dict[str, tuple[Callable[[Any], Any], Any]] = {
    "server, fixed": (lambda s: DifferentialPrivacyServerSideFixedClipping(s, NOISE, CLIP, NODES), None),
    "server, adaptive": (lambda s: DifferentialPrivacyServerSideAdaptiveClipping(s, NOISE, NODES), None),
    "client, fixed": (lambda s: DifferentialPrivacyClientSideFixedClipping(s, NOISE, CLIP, NODES), fixedclipping_mod),
    "client, adaptive": (
        lambda s: DifferentialPrivacyClientSideAdaptiveClipping(s, NOISE, NODES),
        adaptiveclipping_mod,
    ),
    "local": (lambda s: s, LocalDpMod(CLIP, 1.0, 1.0, 1e-5)),
}
STRATEGIES: dict[str, Callable[[], AlgorithmStrategy]] = {
    "drag": lambda: DragStrategy(c=0.25, bootstrap="fedavg"),
    "br_drag": lambda: BRDragStrategy(root, c=0.25),
    "median": lambda: AlgorithmStrategy("median"),
}


def with_mod(mod: Any) -> Callable[[Message, Context], Message]:
    app = make_app()

    def handle(message: Message, context: Context) -> Message:
        wrapped = mod is not None and message.metadata.message_type == "train"
        return mod(message, context, app) if wrapped else app(message, context)  # type: ignore[no-any-return]

    return handle


@pytest.mark.parametrize("privacy", PRIVACY)
@pytest.mark.parametrize("name", STRATEGIES)
def test_every_combination_runs(name: str, privacy: str) -> None:
    wrap, mod = PRIVACY[privacy]
    strategy = STRATEGIES[name]()
    grid = LocalGrid(with_mod(mod), [{"partition-id": i} for i in range(NODES)])
    result = wrap(strategy).start(grid, initial_arrays(), num_rounds=3, timeout=30, train_config=ConfigRecord())
    assert torch.isfinite(vector(result.arrays)).all() and not strategy.refusals.counts
    assert [record.metrics["used"] for record in strategy.records] == [NODES] * 3
    if privacy != "local":  # its noise is in the update
        assert max(max(record.clients["norm"]) for record in strategy.records) < CLIP + 1e-3


def test_clients_that_modify_their_own_updates_give_drag() -> None:
    """The server only averages; r is the last change of the model, and the first round has none."""
    models: list[torch.Tensor] = []

    def dragged(message: Message, context: Context, call_next: Any) -> Message:
        w = vector(message.content["arrays"])
        if not models or not torch.equal(models[-1], w):
            models.append(w)
        reply = call_next(message, context)
        if len(models) == 1:
            return reply  # type: ignore[no-any-return]
        g, r = vector(reply.content["arrays"]) - w, models[-1] - models[-2]
        lam = 0.25 * (1 - g @ r / (g.norm() * r.norm()))
        v = w + (1 - lam) * g + lam * g.norm() * r / r.norm()
        reply.content["arrays"] = ArrayRecord(
            {"layer.weight": Array(v[:15].reshape(3, 5).numpy()), "layer.bias": Array(v[15:].numpy())}
        )
        return reply  # type: ignore[no-any-return]

    grid = LocalGrid(with_mod(dragged), [{"partition-id": i} for i in range(NODES)])
    summed = start(AlgorithmStrategy("fedavg"), grid, rounds=3)
    single = start(DragStrategy(c=0.25, bootstrap="fedavg"), make_grid(range(NODES)), rounds=3)
    np.testing.assert_allclose(vector(summed.arrays).numpy(), vector(single.arrays).numpy(), atol=1e-5)
