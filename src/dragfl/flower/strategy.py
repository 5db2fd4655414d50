"""A strategy for existing Flower apps: `AlgorithmStrategy("trimmed_mean", f=2)` instead of `FedAvg()`.

It derives from `flwr.serverapp.strategy.FedAvg`, Flower's extension point, so its arguments and `start()` carry over. A
round is the simulator's own server round. A reply that cannot be used is left out and counted by node and reason.
"""

from __future__ import annotations

import inspect
import logging
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Literal, TypedDict

from flwr.app import ArrayRecord, ConfigRecord, Message, MessageType, MetricRecord, RecordDict
from flwr.serverapp import Grid
from flwr.serverapp.strategy import FedAvg

from dragfl.aggregates.fednova import FedNova
from dragfl.errors import SpecError
from dragfl.flower.refusals import LOG, Refusals
from dragfl.flower.sampling import Nodes
from dragfl.flower.strategy_model import Model
from dragfl.flower.strategy_replies import Asked, ReplyCheck, average_metrics, check_evaluation
from dragfl.flower.strategy_server import OwnData, RoundSettings, drop_in_algorithm, run_round
from dragfl.own_code import named_errors
from dragfl.schedules import Schedule, check_range
from dragfl.types import Algorithm, RoundRecord

RootFunction = Callable[[ArrayRecord, int], Any]
DirectionsFunction = Callable[[ArrayRecord, int], Sequence[Any]]
AverageFunction = Callable[[list[RecordDict], str], MetricRecord]
FEDAVG = tuple(inspect.signature(FedAvg.__init__).parameters)[1:]  # the names of its arguments
NOT_REPORTED = ("sampled", "dropped_nonfinite", "attackers", "lr", "train_loss", "bytes_down", "bytes_up", "missing")


class Options(TypedDict, total=False):
    """Arguments that every strategy takes; `AlgorithmStrategy` explains them."""

    seed: int
    max_norm: float | None
    min_replies: int
    statistics: Sequence[str]
    server_lr: float | Schedule
    fraction_train: float
    fraction_evaluate: float
    min_train_nodes: int
    min_evaluate_nodes: int
    min_available_nodes: int
    weighted_by_key: str
    arrayrecord_key: str
    configrecord_key: str
    train_metrics_aggr_fn: AverageFunction | None
    evaluate_metrics_aggr_fn: AverageFunction | None


class AlgorithmStrategy(FedAvg):
    """Any algorithm of dragfl that leaves local training as it is, for Flower clients as they are.

    Clients receive and return named arrays, as with Flower's FedAvg. Names, order and dtypes on the wire are those of
    the initial arrays; the arithmetic is float32. Integer arrays and BatchNorm statistics (names that end in
    running_mean, running_var or num_batches_tracked) are averaged apart from the update, each client with the same
    weight: by the rule itself if it is robust, by their median under robust rules that are defined for updates only
    (BR-DRAG, Cone DRAG, FLTrust), else by their mean.

    Nodes are numbered as they appear, new ones in the order of name and id. The sampled numbers depend only on the
    seed, the round and which nodes are connected; a node without a name has another id, and so another number, in each
    federation. A round without enough usable replies leaves the model as it is. A strategy object can be started again:
    round 1 resets it.

    Parameters
    ----------
    algorithm : str | Algorithm | function
        A preset (`dragfl list algorithms`), a chain such as "nnm+median", an `Algorithm` of your own parts, or a
        function of the (n, d) updates that returns the step.
    root : (ArrayRecord, int) -> ArrayRecord | Mapping[str, ndarray | Tensor], optional
        Trains the arrays it is given on the server's own data and returns them; the second argument is the round. It is
        required by br_drag, cone_drag, fltrust and root_only.
    directions : (ArrayRecord, int) -> sequence of ArrayRecord | Mapping[str, ndarray | Tensor], optional
        Returns a list with the arrays after a local step on samples of each class of the server's own data, the same
        classes in every round; without labels, of random batches. It is required by cone_drag and boba.
    seed : int
        The seed of the sampling of nodes and of rules with random draws.
    max_norm : float, optional
        Refuse an update with a larger Euclidean norm.
    min_replies : int
        A round with fewer usable replies leaves the model as it is.
    statistics : sequence of str
        How the names of further arrays end that are averaged apart from the update.
    steps_key : str
        The metric in which clients report their number of local steps; only FedNova needs it.
    **settings
        The arguments of `flwr.serverapp.strategy.FedAvg` (fraction_train, min_available_nodes, weighted_by_key, ...)
        and the settings of the algorithm (`f=2`, `c=0.25`, `weighting="samples"`, `server_lr=0.5`). Without a function
        of your own, each metric is averaged over the replies that have it. `weighted_by_key` enters the model only with
        `weighting="samples"` and in FedNova; a reply without it counts as one example.

    Attributes
    ----------
    refusals : Refusals
        What was left out in this run, by node and reason: `strategy.refusals.counts`.
    nodes : dict[int, str]
        Client number -> the name of its node, or its id where it has no name.
    records : list[RoundRecord]
        One record a round: the metrics of the rule, and its telemetry for each client.
    """

    def __init__(
        self,
        algorithm: str | Algorithm | Callable[..., Any] = "fedavg",
        *,
        root: RootFunction | None = None,
        directions: DirectionsFunction | None = None,
        seed: int = 0,
        max_norm: float | None = None,
        min_replies: int = 1,
        statistics: Sequence[str] = (),
        steps_key: str = "num-steps",
        **settings: Any,
    ) -> None:
        options = {name: settings.pop(name) for name in FEDAVG if name in settings}
        for name in ("train_metrics_aggr_fn", "evaluate_metrics_aggr_fn"):
            options[name] = options.get(name) or average_metrics
        super().__init__(**options)
        self.algorithm = drop_in_algorithm(algorithm, settings, root is not None, directions is not None)
        check_range("strategy", "min_replies", min_replies, 1, 1e9)
        if max_norm is not None:
            check_range("strategy", "max_norm", max_norm, 0.0, 1e30, open_low=True)
        if isinstance(statistics, str):
            raise SpecError(f"strategy.statistics: {statistics!r}; give a list of name endings, such as ['.scale']")
        self.root, self.directions, self.seed = root, directions, seed
        self.max_norm, self.min_replies = max_norm, min_replies
        self.statistics = tuple(statistics)
        self.steps_key = steps_key if isinstance(self.algorithm.aggregate, FedNova) else None
        self._reset()

    def _reset(self) -> None:
        """Forget an earlier run."""
        self.refusals = Refusals()
        self.records: list[RoundRecord] = []
        self._nodes = Nodes()
        self._model: Model | None = None
        self._asked: dict[str, Asked] = {}  # message type -> the messages of this round

    @property
    def nodes(self) -> dict[int, str]:
        return {client: self._nodes.names[node] for node, client in self._nodes.clients.items()}

    def summary(self) -> None:
        """Log the settings of the strategy."""
        logging.getLogger("flwr").info("\t├──> Algorithm: %s (dragfl), seed %d", self.algorithm.name, self.seed)
        super().summary()

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """The training messages of a round: one for each sampled node."""
        if server_round == 1:
            self._reset()
        if self.fraction_train == 0.0:
            return []
        nodes = self._sample(grid, "sample", server_round, self.fraction_train, self.min_train_nodes)
        if self._model is None:
            self._model = Model.start(arrays, self.statistics, self.algorithm, len(self.nodes))
        model = self._model.receive(arrays, self.algorithm)
        self._model = replace(model, state=replace(model.state, t=server_round - 1))
        return self._messages(MessageType.TRAIN, nodes, model.record, config, server_round)

    def configure_evaluate(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """The evaluation messages of a round: one for each sampled node."""
        if self.fraction_evaluate == 0.0:
            return []
        nodes = self._sample(grid, "evaluate", server_round, self.fraction_evaluate, self.min_evaluate_nodes)
        return self._messages(MessageType.EVALUATE, nodes, arrays, config, server_round)

    def _sample(self, grid: Grid, purpose: str, server_round: int, fraction: float, least: int) -> list[int]:
        def size_of(connected: int) -> int:
            return max(int(connected * fraction), least)

        return self._nodes.sample(grid, size_of, self.min_available_nodes, self.seed, purpose, server_round - 1)

    def _messages(
        self, kind: str, nodes: Sequence[int], arrays: ArrayRecord, config: ConfigRecord, server_round: int
    ) -> list[Message]:
        config["server-round"] = server_round
        content = RecordDict({self.arrayrecord_key: arrays, self.configrecord_key: config})
        messages = [Message(content, node, kind, group_id=str(server_round)) for node in nodes]
        self._asked[kind] = Asked(tuple(m.metadata for m in messages), self._nodes.clients, self._nodes.names)
        return messages

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """(the model after the round, averaged metrics with `used`, `refused` and the numbers of the rule)."""
        model, asked = self._model, self._asked.pop(MessageType.TRAIN, None)
        if model is None or asked is None:
            return None, None
        before = self.refusals.total
        check = ReplyCheck(model.arrays, model.sent, self.weighted_by_key, self.steps_key, self.max_norm)
        usable = asked.usable(replies, check, self.refusals)
        settings = RoundSettings(self.algorithm, self.seed, self.min_replies, len(self.nodes))
        own = OwnData(*(self._trained(name, model, server_round) for name in ("root", "directions")))
        self._model, record = run_round(settings, model, asked.cohort, usable, own)
        self.records.append(record)
        metrics = self._average(self.train_metrics_aggr_fn, [reply.content for reply in usable])
        metrics.pop("skipped", None)  # a client may have sent one
        for name, value in record.metrics.items():
            if name not in NOT_REPORTED and isinstance(value, int | float) and math.isfinite(value):
                metrics[name] = value
        metrics["refused"] = self.refusals.total - before
        if "skipped" in record.metrics:
            metrics["skipped"] = 1
        return self._model.record, metrics

    def aggregate_evaluate(self, server_round: int, replies: Iterable[Message]) -> MetricRecord | None:
        """The averaged metrics; None if no reply can be used."""
        asked = self._asked.pop(MessageType.EVALUATE, None)
        if asked is None:
            return None
        usable = asked.usable(replies, partial(check_evaluation, self.weighted_by_key), self.refusals)
        return self._average(self.evaluate_metrics_aggr_fn, usable) if usable else None

    def _trained(self, name: Literal["root", "directions"], model: Model, server_round: int) -> Callable[[], Any]:
        """Train on the server's own data, when a rule asks for it."""

        def train() -> Any:
            function = self.root if name == "root" else self.directions
            assert function is not None
            with named_errors(name):
                return function(ArrayRecord(dict(model.record)), server_round)

        return train

    def _average(self, function: AverageFunction, contents: list[RecordDict]) -> MetricRecord:
        """The averages of the user's function; of dragfl's own if that raises, because a run must not end there."""
        if not contents:
            return MetricRecord()
        if function is not average_metrics:
            try:
                return function(contents, self.weighted_by_key)
            except Exception:
                LOG.exception("the function that averages metrics failed; metrics are averaged as by default")
        return average_metrics(contents, self.weighted_by_key)
