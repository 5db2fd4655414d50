"""The server half of a drop-in strategy: the simulator's own round (`engine/server_round.py`) on replies of nodes.

Replies are folded one by one in the order of their client numbers, so neither the order of arrival nor a reply that was
left out changes how the others are added.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from flwr.app import Array
from torch import Tensor

from dragfl.aggregates.robust import Chain
from dragfl.aggregates.robust.contract import HasF
from dragfl.aggregates.robust.one_shot import median
from dragfl.algorithms import PARTS
from dragfl.config.build_parts import make_algorithm
from dragfl.config.check_parts import needs_of
from dragfl.engine.aggregation import Total, fold, mean_update
from dragfl.engine.client import BUFFERS, ClientResults, concat
from dragfl.engine.client_store import Layout, MemoryStore
from dragfl.engine.iterate import Iterate
from dragfl.engine.server_round import ServerRound
from dragfl.errors import Diverged, PartError, SpecError
from dragfl.flower.named_arrays import NamedArrays, Values
from dragfl.flower.refusals import LOG
from dragfl.flower.strategy_model import Model
from dragfl.flower.strategy_replies import INTEGERS, Reply
from dragfl.own_code import checked_tensor
from dragfl.types import Algorithm, FederationInfo, Partial, Robust, RoundContext, RoundRecord, Updates


@dataclass(frozen=True)
class OwnData:
    """What the user's functions train on the server's own data in this round, as named arrays."""

    root: Callable[[], Any]
    directions: Callable[[], Any]  # a sequence of them, one for each class


@dataclass(frozen=True)
class RoundSettings:
    """What a round depends on besides the model and the replies."""

    algorithm: Algorithm
    seed: int
    min_replies: int
    clients: int  # nodes seen so far


@dataclass(frozen=True)
class DropInBackend:
    """Clients are Flower's; the root update and the directions are computed here."""

    root: Callable[[], Tensor]
    directions: Callable[[], Tensor]

    def gradients(self, tasks: Iterable[object]) -> Iterator[Updates]:
        return iter(())

    def train_root(self, w: Tensor, context: RoundContext, buffers: Tensor | None = None) -> Tensor:
        return self.root()

    def train_directions(self, w: Tensor, context: RoundContext, buffers: Tensor | None = None) -> Tensor:
        return self.directions()

    def missing(self) -> Mapping[int, str]:
        return {}


@dataclass(frozen=True)
class DropInServer:
    """What a round of the engine asks of a server (`engine.state.Server`). Clients keep no state of dragfl's."""

    info: FederationInfo
    algorithm: Algorithm
    seed: int
    min_replies: int
    initial_norm: float
    backend: DropInBackend
    adversary: None = None
    lr: float = 1.0  # the clients' own is not known
    momentum: float = 0.0
    availability: float = 1.0
    iterate: Iterate = field(default_factory=Iterate)
    store: MemoryStore = field(default_factory=lambda: MemoryStore(Layout({}), 0))

    def blocks(self, cohort: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
        return ((client,) for client in cohort)


@dataclass(frozen=True)
class Replies:
    """The results of the checked replies, one client a block. They can be read several times."""

    arrays: NamedArrays
    sent: Values
    replies: Sequence[Reply]

    def __iter__(self) -> Iterator[ClientResults]:
        return (reply.results(self.arrays, self.sent) for reply in self.replies)


def run_round(
    settings: RoundSettings, model: Model, cohort: tuple[int, ...], replies: Sequence[Reply], own: OwnData
) -> tuple[Model, RoundRecord]:
    """(the model after a round, its record). Without usable replies the model stays as it is; the record has why."""
    if not replies:
        return _skipped(model, cohort, "no usable reply")
    arrays, sent = model.arrays, model.sent
    info = FederationInfo(len(model.state.w), settings.clients, len(cohort), arrays.segments)
    backend = DropInBackend(
        lambda: _own_update(arrays, "root", own.root(), sent),
        lambda: _directions(arrays, own.directions(), sent),
    )
    fed = DropInServer(info, settings.algorithm, settings.seed, settings.min_replies, model.initial_norm, backend)
    server = ServerRound.open(fed, model.state, cohort)
    results, rule = Replies(arrays, sent, replies), settings.algorithm.aggregate
    mean = mean_update(fold(rule, Total(), block) for block in results) if "mean" in server.needs else None
    plan = server.begin(mean, len(replies))
    blocks: Iterable[ClientResults] = [concat(list(results))] if "all" in server.needs else results
    for block in blocks:
        server.take(fold(rule, plan, block))
    try:
        state, record = server.close(None)
    except Diverged as error:
        return _skipped(model, cohort, str(error))
    total = server.sums.partial
    if "skipped" in record.metrics or total is None:
        return _skipped(model, cohort, str(record.metrics["skipped"]), record)
    if arrays.kind("statistic"):
        rows = [arrays.vector(reply.values, "statistic") for reply in replies]
        state = replace(state, buffers=_extra(rule, total, BUFFERS, rows))
    integers: Values = {}
    if arrays.kind("integer"):
        rows = [arrays.changes(reply.values, sent) for reply in replies]
        integers = arrays.moved_integers(sent, _extra(rule, total, INTEGERS, rows))
    encoded = arrays.record(state.w, state.buffers, integers)
    values = arrays.read(encoded)
    if not all(np.isfinite(value).all() for value in values.values()):
        return _skipped(model, cohort, "the model exceeds the range of its dtype on the wire")
    return replace(model, record=encoded, sent=values, state=state, before=model.state), record


def _skipped(
    model: Model, cohort: tuple[int, ...], reason: str, record: RoundRecord | None = None
) -> tuple[Model, RoundRecord]:
    """The model as it is, one round later."""
    state = replace(model.state, t=model.state.t + 1)
    LOG.warning("round %d: the model stays as it is: %s", state.t, reason)
    record = record or RoundRecord(state.t, {"sampled": len(cohort), "used": 0, "skipped": reason}, {}, {})
    return replace(model, state=state, before=model.state), record


def _extra(rule: Any, total: Partial, name: str, rows: list[Tensor]) -> Tensor:
    """The aggregate of statistics or integers: the rule's own where it has one, the median under other robust rules.

    It is kept within the range of the clients' values: a rule that adds noise must not make a variance negative.
    """
    values = torch.stack(rows)
    if isinstance(rule, Robust) and not rule.aggregates_extras:
        return median(values)
    return (total.extra[name] / total.count).float().clamp(values.amin(0), values.amax(0))


def _directions(arrays: NamedArrays, returned: Any, sent: Values) -> Tensor:
    """(K, d) the update of each class of the server's own data."""
    if not isinstance(returned, list | tuple) or not returned:
        seen = f"an empty {type(returned).__name__}" if returned in ([], ()) else f"a {type(returned).__name__}"
        raise PartError(f"directions returned {seen}; return a list of arrays by name, one for each class")
    return torch.stack([_own_update(arrays, f"directions[{k}]", one, sent) for k, one in enumerate(returned)])


def _own_update(arrays: NamedArrays, what: str, returned: Any, sent: Values) -> Tensor:
    """The update of the server's own data, from the named arrays that the user's function returned."""
    if not isinstance(returned, Mapping):
        raise PartError(f"{what} returned a {type(returned).__name__}; return an ArrayRecord, or names and arrays")
    pieces = []
    for entry in arrays.kind("parameter"):
        if entry.name not in returned:
            raise PartError(f"{what} returned no array '{entry.name}'; return all that it is given")
        value = returned[entry.name]
        value = value.numpy() if isinstance(value, Array) else value
        pieces.append(checked_tensor(f"{what}: '{entry.name}'", value, entry.shape).cpu().reshape(-1))
    return torch.cat(pieces) - arrays.vector(sent)


def drop_in_algorithm(name: object, settings: Mapping[str, Any], root: bool, directions: bool) -> Algorithm:
    """The algorithm of a strategy; raise where it changes local training, or misses the root data or f."""
    algorithm = make_algorithm({"algorithm": {"name": name, **settings}})
    rule, label = algorithm.aggregate, algorithm.name
    if not isinstance(algorithm.correction, PARTS["correction"]["none"]):
        raise SpecError(
            f"{label} changes the local training of clients ({type(algorithm.correction).__name__}), which a strategy "
            "cannot do for clients as they are; use dragfl's own client: dragfl.flower.client_app (docs/flower.md)"
        )
    needs = needs_of(rule)
    if "directions" in needs and not directions:
        raise SpecError(
            f"{label} needs an update of each class of the server's own data; give "
            "directions=function(arrays, server_round) -> a sequence of arrays, one for each class"
        )
    if directions and "directions" not in needs:
        raise SpecError(
            f"{label} does not use the classes of the server's own data; remove directions, or use cone_drag"
        )
    if "root" in needs and not root:
        raise SpecError(f"{label} needs the server's own data; give root=function(arrays, server_round) -> arrays")
    if root and "root" not in needs:
        raise SpecError(f"{label} does not use the server's own data; remove root, or use br_drag or fltrust")
    parts = rule.parts if isinstance(rule, Chain) else (rule,)
    if getattr(rule, "f", 0) is None and any(isinstance(part, HasF) and part.f is None for part in parts):
        raise SpecError(f"{label} assumes a number of malicious nodes among those sampled; give f, such as f=1")
    if getattr(rule, "prox", 0.0):
        raise SpecError(f"{label}: prox needs the learning rate of the clients, which is not known here; leave it out")
    return algorithm
