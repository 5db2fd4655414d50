"""The experiment: a TOML file with `key=value` overrides, checked and resolved. Imports no torch.

    experiment = dragfl.load("drag.toml", "algorithm.c=0.1")
    experiment = dragfl.load({"rounds": 50, "algorithm": {"name": "drag"}})

From Python, the value of any name may be the object itself.
"""

from __future__ import annotations

import dataclasses
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tomli_w

from dragfl.aggregates.robust import Chain
from dragfl.aggregates.robust.contract import part_name
from dragfl.algorithms import PARTS
from dragfl.attacks import ATTACKS
from dragfl.config.assumed_f import default_f, probability_above, smallest_f
from dragfl.config.augmentation import describe_augment, make_augment
from dragfl.config.build_parts import (
    Model,
    check_dataset,
    check_named_settings,
    describe_part,
    make_algorithm,
    make_attack,
    make_model,
    needs_root,
)
from dragfl.config.check_parts import needs_of
from dragfl.config.compatible import check_options
from dragfl.config.convert import check_keys, check_text, convert
from dragfl.config.locate import located, not_toml, with_key
from dragfl.config.migrate import refuse_old_keys
from dragfl.config.overrides import EXCEEDS_F, override
from dragfl.config.registry import build, describe, without_none
from dragfl.config.tables import Attackers, Checkpoint, Clients, Data, Engine, Evaluation, Flower, Root, State, Top
from dragfl.data.partitions import PARTITIONS, Partition
from dragfl.errors import SpecError
from dragfl.models import MODELS
from dragfl.own_code import OBJECT, name_of, named_errors, refuse_own_code, spec_name
from dragfl.types import Algorithm, AssumesAttackers, Attack, RefusesAggregates, Robust

PLAIN_TABLES: dict[str, Any] = {
    "evaluation": Evaluation,
    "checkpoint": Checkpoint,
    "state": State,
    "engine": Engine,
    "flower": Flower,
}
TABLES = ("data", "root", "clients", "algorithm", "algorithms", "attack", "attacks", "model", *PLAIN_TABLES)
TOP_KEYS = tuple(f.name for f in dataclasses.fields(Top))


@dataclass(frozen=True)
class Experiment:
    """A checked experiment; made by `dragfl.load`. The keys of each table are listed in docs/experiments.md."""

    name: str  # of the run and its directory
    seed: int  # of all random draws
    rounds: int  # number of rounds
    target_accuracy: float | None  # a fraction; the first evaluated round that reaches it is reported
    stop_at_target: bool  # whether the run ends there
    dataset: Any  # a name, or a Dataset
    partition: Partition  # how training samples are distributed to clients
    root: Root | None  # `[root]`; None: the server has no data
    clients: Clients  # `[clients]`
    algorithm: Algorithm  # its three parts
    attack: Attack[Any] | None  # None: no attack
    attackers: Attackers  # the keys of `[attack]` that every attack has
    model: Model  # `[model]`
    evaluation: Evaluation  # `[evaluation]`
    checkpoint: Checkpoint  # `[checkpoint]`
    state: State  # `[state]`
    engine: Engine  # `[engine]`
    flower: Flower  # `[flower]`

    @property
    def exceeds_f(self) -> float | None:
        """The probability, to three digits, that a cohort has more attackers than the rule assumes.

        None without an attack, or if the rule does not assume a number.
        """
        f = smallest_f(self.algorithm.aggregate)
        if self.attack is None or f is None:
            return None
        return float(f"{probability_above(f, self.attackers, self.clients):.3g}")

    def tables(self) -> dict[str, Any]:
        """The resolved spec as plain tables: loading them again gives the same experiment.

        A Python object that a spec cannot name is marked `object:NAME`; loading that is an error.
        """
        dataset = self.dataset if isinstance(self.dataset, str) else f"{OBJECT}{self.dataset.name}"
        parts = {part: describe_part(getattr(self.algorithm, part), registry) for part, registry in PARTS.items()}
        network = next((name for name, make in MODELS.items() if make is self.model.make), None)
        model = {"name": network or spec_name(self.model.make, self.model.source), **self.model.settings}
        attackers = dataclasses.asdict(self.attackers) | {EXCEEDS_F: self.exceeds_f}
        augment = describe_augment(self.clients.augment)
        tables = {
            **{key: getattr(self, key) for key in TOP_KEYS},
            "data": {"dataset": dataset, "partition": describe(self.partition, PARTITIONS, key="kind")},
            "root": dataclasses.asdict(self.root) if self.root else None,
            "clients": dataclasses.asdict(dataclasses.replace(self.clients, augment=augment)),
            "algorithm": {"name": self.algorithm.name, **parts},
            "attack": describe(self.attack, ATTACKS) | attackers if self.attack else None,
            "model": model | {"double_softmax": self.model.double_softmax, "buffers": self.model.buffers},
            **{key: dataclasses.asdict(getattr(self, key)) for key in PLAIN_TABLES},
        }
        if self.flower == Flower() and self.engine.executor != "flower":
            del tables["flower"]
        return without_none(tables)

    def to_toml(self) -> str:
        """The resolved spec as TOML, as in `spec.toml` of a run directory."""
        return tomli_w.dumps(self.tables())


def load(source: str | Path | Mapping[str, Any], *overrides: str, safe: bool = False) -> Experiment:
    """Read, override, check and resolve an experiment.

    Parameters
    ----------
    source
        A TOML file, or its tables as a mapping, in which any name may be the Python object itself.
    *overrides
        Changes as on the command line, such as "clients.lr=0.05".
    safe
        Raise `SpecError` where the spec names code to import (`module:attr`), before anything is imported.
    """
    with located(source, overrides), refuse_own_code(safe):
        tables = override(read(source), overrides)
        with with_key(tables):
            return resolve(tables)


def as_experiment(given: Experiment | str | Path | Mapping[str, Any]) -> Experiment:
    """The experiment itself, or the one that `load` makes of a file or tables."""
    return given if isinstance(given, Experiment) else load(given)


def read(source: str | Path | Mapping[str, Any]) -> dict[str, Any]:
    """The tables of a TOML file, or a copy of a mapping."""
    if isinstance(source, Mapping):
        return {k: dict(v) if isinstance(v, Mapping) else v for k, v in source.items()}
    if not isinstance(source, str | Path):
        raise SpecError(f"a {type(source).__name__} given; give a TOML file or tables, such as experiment.tables()")
    try:
        text = Path(source).read_text()
    except FileNotFoundError:
        raise SpecError(f"{source}: no such file; give a TOML experiment") from None
    except OSError as error:
        raise SpecError(f"{source}: cannot be read ({error.strerror}); give a TOML experiment") from None
    except ValueError as error:  # bytes that are no text, or a path with a zero byte
        raise SpecError(f"{source}: cannot be read as text ({error}); give a TOML experiment in UTF-8") from None
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise not_toml(source, text, error) from None


def resolve(tables: Mapping[str, Any]) -> Experiment:
    """Check plain tables and build the experiment they describe."""
    check_text(tables)
    check_keys("", tables, [*TOP_KEYS, *TABLES])
    refuse_old_keys(tables)
    if isinstance(tables.get("algorithm"), Algorithm):
        tables = {**tables, "algorithm": {"name": tables["algorithm"]}}
    if isinstance(tables.get("model"), str) or callable(tables.get("model")):
        tables = {**tables, "model": {"name": tables["model"]}}
    for key in TABLES:
        if not isinstance(tables.get(key, {}), Mapping):
            raise SpecError(f"{key}: expected a table, got {tables[key]!r}; write [{key}] and its keys below it")
    check_named_settings(tables)
    top = convert("", {k: v for k, v in tables.items() if k not in TABLES}, Top)
    data = convert("data", tables.get("data", {}), Data)
    attack, attackers = make_attack(tables)
    experiment = Experiment(
        **dataclasses.asdict(top),
        dataset=check_dataset(data.dataset),
        partition=build("data.partition", data.partition, PARTITIONS, ("__call__",), key="kind"),
        root=convert("root", tables["root"], Root) if "root" in tables else None,
        clients=_with_defaults(convert("clients", tables.get("clients", {}), Clients)),
        algorithm=make_algorithm(tables),
        attack=attack,
        attackers=attackers,
        model=make_model(tables.get("model", {})),
        **{key: convert(key, tables.get(key, {}), kind) for key, kind in PLAIN_TABLES.items()},
    )
    _check_number_of_attackers(experiment)
    experiment = _with_default_f(experiment)
    _check_together(experiment)
    _check_exceeds_f(experiment, tables.get("attack", {}).get(EXCEEDS_F))
    return experiment


def _with_defaults(clients: Clients) -> Clients:
    """All clients in each round and 5 local steps, where nothing else is given."""
    steps = 5 if clients.local_steps is None and clients.local_epochs is None else clients.local_steps
    per_round = clients.total if clients.per_round is None else clients.per_round
    return dataclasses.replace(clients, local_steps=steps, per_round=per_round)


def _with_default_f(e: Experiment) -> Experiment:
    """The experiment with the default f, if its rule assumes a number of attackers and none is set."""
    rule = e.algorithm.aggregate
    if not isinstance(rule, AssumesAttackers) or rule.f is not None:
        return e
    with named_errors(name_of(rule)):
        rule = dataclasses.replace(rule, f=default_f(rule, e.attackers, e.clients))  # type: ignore[type-var]
    return dataclasses.replace(e, algorithm=dataclasses.replace(e.algorithm, aggregate=rule))


def _check_number_of_attackers(e: Experiment) -> None:
    limit = (e.clients.per_round or e.clients.total) if e.attackers.of_sampled else e.clients.total
    if (e.attackers.attackers or 0) > limit:
        raise SpecError(
            f"attack.attackers: {e.attackers.attackers} is more than the {limit} clients there are; lower it"
        )


def _check_together(e: Experiment) -> None:
    """The checks that need several tables."""
    rule, per_round = e.algorithm.aggregate, e.clients.per_round or e.clients.total
    if e.root is None and needs_root(e.algorithm):
        raise SpecError(
            f"algorithm.name: '{e.algorithm.name}' needs trusted root data and there is no [root] table; "
            "add for example: [root] with size = 100"
        )
    with named_errors(name_of(rule)):
        if isinstance(rule, AssumesAttackers) and (why := rule.shortage(per_round)):
            raise SpecError(f"algorithm.aggregate: {why}")
    check_correction_with_aggregate(e)
    check_options(e.clients, e.algorithm, e.root)
    make_augment(e.clients.augment)
    if e.flower.min_replies > per_round:
        raise SpecError(
            f"flower.min_replies: {e.flower.min_replies}, and only {per_round} clients are asked in a round; lower it"
        )
    if e.flower.min_nodes is not None and e.flower.min_nodes > e.clients.total:
        raise SpecError(f"flower.min_nodes: {e.flower.min_nodes} is above clients.total = {e.clients.total}; lower it")


def _check_exceeds_f(e: Experiment, given: Any) -> None:
    """Refuse another value than the computed one; a resolved spec has the right one."""
    if given is not None and given != e.exceeds_f:
        computed = "there is none" if e.exceeds_f is None else f"it is {e.exceeds_f}"
        raise SpecError(f"attack.{EXCEEDS_F}: {given} given, but {computed} for these settings; remove {EXCEEDS_F}")


def check_correction_with_aggregate(e: Experiment) -> None:
    """Refuse quantities from clients that would enter the model past a robust aggregate as a plain sum.

    The extras of a correction and BatchNorm buffers must pass through the rule itself. The cohort gradient of Mime is a
    plain mean under every rule.
    """
    rule, correction = e.algorithm.aggregate, e.algorithm.correction
    if not isinstance(rule, Robust):
        return
    sender = describe_part(correction, PARTS["correction"])["name"]
    robust = describe_part(rule, PARTS["aggregate"])["name"]
    advice = "choose another correction, or an aggregate such as"
    if needs_of(correction) & {"gradient", "weighted_gradient"}:
        raise SpecError(
            f"algorithm.correction: {sender} uses the plain mean of the clients' full gradients, so a malicious client "
            f"moves the model past the robust aggregate {robust}; {advice} mean"
        )
    parts = [part_name(part) for part in rule.parts] if isinstance(rule, Chain) else [robust]
    last = parts[-1]  # after NNM the accuracy holds
    if isinstance(correction, RefusesAggregates) and last in correction.unsafe_with and "nnm" not in parts:
        raise SpecError(
            f"algorithm.correction: {sender} under {last} loses at least 10 points of accuracy to 2 attackers of 10 "
            f"clients (measured, see docs/robust.md); {advice} multi_krum"
        )
    if rule.aggregates_extras:
        return
    if extras := list(correction.sends):
        raise SpecError(
            f"algorithm.correction: {sender} sends {', '.join(extras)} with each update, and {robust} cannot "
            f"aggregate that robustly; {advice} median or multi_krum"
        )
    if e.model.buffers == "average" and e.attack is not None:
        raise SpecError(
            f"model.buffers: 'average' sends the buffers with each update, and {robust} cannot aggregate them "
            "robustly; choose an aggregate such as median or multi_krum, or a model without BatchNorm"
        )
