"""The model of a drop-in strategy between rounds, and what happens to it between an aggregation and the next round."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import torch
from flwr.app import ArrayRecord
from torch import Tensor

from dragfl.aggregates.drag import Drag, DragState
from dragfl.aggregates.robust import Chain
from dragfl.arithmetic import EPS, norm
from dragfl.engine import calls
from dragfl.engine.server_round import vectors_of
from dragfl.engine.state import FederationState
from dragfl.flower.named_arrays import NamedArrays, Values
from dragfl.flower.refusals import LOG
from dragfl.schedules import at
from dragfl.types import Algorithm, FederationInfo


@dataclass(frozen=True)
class Model:
    """The model as named arrays, with everything else that the server keeps between rounds."""

    arrays: NamedArrays
    record: ArrayRecord  # what is sent out
    sent: Values  # its arrays
    state: FederationState
    initial_norm: float
    before: FederationState | None = None  # the state at the start of the last round

    @staticmethod
    def start(record: ArrayRecord, statistics: tuple[str, ...], algorithm: Algorithm, clients: int) -> Model:
        """The model before the first round."""
        arrays = NamedArrays.of(record, statistics)
        values = arrays.read_own(record, "initial arrays")
        w = arrays.vector(values)
        info = FederationInfo(len(w), clients, clients, arrays.segments)
        parts = (algorithm.correction, algorithm.aggregate, algorithm.server)
        correction, aggregate, server = (calls.init(part, info) for part in parts)
        state = FederationState(0, w, correction, aggregate, server, None, _statistics(arrays, values))
        return Model(arrays, record, values, state, norm(w))

    def receive(self, record: ArrayRecord, algorithm: Algorithm) -> Model:
        """The model with the arrays that Flower hands out, where they are not those of the last round.

        Server-side differential privacy adds noise after the aggregation. What later rounds depend on must then come
        from the released models alone, so DRAG's reference is computed from these.
        """
        if record.keys() == self.record.keys() and all(record[n].data == a.data for n, a in self.record.items()):
            return self
        values = self.arrays.read_own(record, "the arrays given to configure_train")
        w, statistics = self.arrays.vector(values), _statistics(self.arrays, values)
        aggregate = _released_reference(algorithm, self.before, self.state, w)
        state = replace(self.state, w=w, buffers=statistics, aggregate=aggregate)
        record = self.arrays.record(w, statistics, values)
        return replace(self, record=record, sent=self.arrays.read(record), state=state)


def _statistics(arrays: NamedArrays, values: Values) -> Tensor | None:
    return arrays.vector(values, "statistic") if arrays.kind("statistic") else None


def _released_reference(algorithm: Algorithm, before: FederationState | None, after: FederationState, w: Tensor) -> Any:
    """The aggregate's state with DRAG's reference taken from released models: (1 - alpha) r + alpha (w - w_before)."""
    if before is None or after.w is before.w:  # before the first round, or it was skipped
        return after.aggregate
    rule = algorithm.aggregate.parts[-1] if isinstance(algorithm.aggregate, Chain) else algorithm.aggregate
    kept = vectors_of(after.server) | ({} if isinstance(rule, Drag) else vectors_of(after.aggregate))
    if kept and before.t == 0:
        LOG.warning(
            "%s: the model was changed after its aggregation, as by differential privacy on the server, but %s of the "
            "server still comes from the unchanged model; use fedavg or drag if this must not be",
            algorithm.name,
            ", ".join(kept),
        )
    if not isinstance(rule, Drag) or not isinstance(before.aggregate, DragState):
        return after.aggregate
    lr = 1.0 if vectors_of(after.server) else at(getattr(algorithm.server, "lr", 1.0), before.t)
    step, r = (w - before.w) / (lr or 1.0), before.aggregate.r
    if not norm(step) > EPS:
        return before.aggregate
    return DragState(step if r is None else torch.lerp(r, step, at(rule.alpha, before.t)))
