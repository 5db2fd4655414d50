"""Build the objects that the tables of a spec describe: dataset, algorithm, attack and model. Imports no torch."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from dragfl.aggregates.robust import Chain
from dragfl.algorithms import PARTS, PRESETS, chain, describe_chain, expand
from dragfl.attacks import ATTACKS
from dragfl.config.convert import check_keys, convert
from dragfl.config.overrides import ATTACKER_KEYS, EXCEEDS_F, NO_ATTACK, with_named_settings
from dragfl.config.registry import build, describe, import_object, look_up
from dragfl.config.tables import Attackers
from dragfl.data import DATASETS, FILE_KINDS
from dragfl.errors import SpecError, nearest
from dragfl.models import MODELS
from dragfl.types import Algorithm, Attack, FederationInfo

METHODS = {
    "correction": ("fields", "sends", "init", "needs", "broadcast", "affine", "client_finish", "server_finish"),
    "aggregate": ("init", "needs", "begin", "fold", "finish"),
    "server": ("init", "update"),
}
ATTACK_METHODS = ("knowledge", "init", "craft")
PROBE = FederationInfo(dim=1, clients=1, per_round=1, segments=(0, 1))  # to ask a part for its needs


@dataclass(frozen=True)
class ChainTable:
    """`{chain = ["nnm", "median"], f = 2}`: names, or tables of a name and settings."""

    chain: list[Any]
    f: int | None = None


@dataclass(frozen=True)
class Model:
    """`[model]`: the function or module that makes the network, and its settings."""

    make: Any  # (shape, classes, **settings) -> nn.Module, or an nn.Module
    settings: Mapping[str, Any] = field(default_factory=dict)
    double_softmax: bool = False
    buffers: Literal["refuse", "average"] = "refuse"


def check_dataset(given: Any) -> Any:
    """Check that the dataset is a known name, an importable `module:attr` or a Dataset, and return it."""
    if isinstance(given, str):
        kind, colon, _ = given.partition(":")
        if not colon and given not in DATASETS:
            raise SpecError(f"data.dataset: unknown dataset '{given}'{nearest(given, DATASETS)}")
        if kind == "object":
            raise SpecError(f"data.dataset: {given} stands for a Dataset that was given from Python; give it again")
        if colon and kind not in FILE_KINDS:
            import_object("data.dataset", given)
    elif not hasattr(given, "inputs"):
        raise SpecError(f"data.dataset: {type(given).__name__} is neither a name nor a dragfl Dataset")
    return given


def check_named_settings(tables: Mapping[str, Any]) -> None:
    """Check every `[algorithms.NAME]` and `[attacks.NAME]`, whether or not the experiment uses it."""
    known: dict[str, Mapping[str, Any]] = {"algorithm": PRESETS, "attack": ATTACKS}
    for kind, names in known.items():
        for name, table in tables.get(f"{kind}s", {}).items():
            if name not in names:
                raise SpecError(f"{kind}s.{name}: unknown {kind} '{name}'{nearest(name, names)}")
            if not isinstance(table, Mapping):
                raise SpecError(f"{kind}s.{name}: expected a table, got {table!r}; write [{kind}s.{name}]")
            named = {"name": name, **table}
            try:
                if kind == "algorithm":
                    expand(named)
                else:
                    build("attack", named, ATTACKS, ATTACK_METHODS)
            except SpecError as error:
                raise SpecError(str(error).replace(f"{kind}.", f"{kind}s.{name}.", 1)) from None


def make_algorithm(tables: Mapping[str, Any]) -> Algorithm:
    """The algorithm of `[algorithm]`: a preset, a composition of parts, or the user's own."""
    table = with_named_settings(tables, "algorithm")
    name = table.get("name")
    own = isinstance(name, Algorithm) or (isinstance(name, str) and ":" in name)
    if own and not PARTS.keys() <= table.keys():  # with all parts spelled out the name is only a label
        return _own_algorithm(name, {k: v for k, v in table.items() if k != "name"})
    expanded = expand(table)
    parts = {part: _make_part(part, expanded[part]) for part in PARTS}
    return Algorithm(**parts, name=expanded["name"])


def _make_part(part: str, given: Any) -> Any:
    """A correction, aggregate or server step; the names in a chain become the parts they stand for."""
    if isinstance(given, Mapping) and given.get("name") == "chain" and "chain" in given:
        table = convert(f"algorithm.{part}", {k: v for k, v in given.items() if k != "name"}, ChainTable)
        given = chain(*table.chain, f=table.f)
    return build(f"algorithm.{part}", given, PARTS[part], METHODS[part])


def describe_part(part: Any, registry: Mapping[str, Any]) -> dict[str, Any]:
    """The inverse of building it: a table with its name and settings; a chain has the names of its parts."""
    return describe_chain(part) if isinstance(part, Chain) else describe(part, registry)


def _own_algorithm(own: Any, settings: dict[str, Any]) -> Algorithm:
    """The user's own: an `Algorithm`, or `module:attr` of one or of a function of the settings that returns one."""
    where = "algorithm.name"
    found = import_object(where, own) if isinstance(own, str) else own
    if callable(found):
        try:
            found = found(**settings)
        except TypeError as error:
            raise SpecError(f"{where}: {own} does not take {settings!r}: {error}") from None
    elif settings:
        raise SpecError(f"{where}: {own} is an object, so it takes no settings; got {settings!r}")
    if not isinstance(found, Algorithm):
        raise SpecError(f"{where}: {own} is a {type(found).__name__}; it must be a dragfl.Algorithm or return one")
    for part in PARTS:
        _make_part(part, getattr(found, part))
    return found


def needs_root(algorithm: Algorithm) -> bool:
    """Whether the algorithm needs trusted root data."""
    parts: tuple[Any, ...] = (algorithm.correction, algorithm.aggregate)
    return any("root" in part.needs(part.init(PROBE)) for part in parts)


def make_attack(tables: Mapping[str, Any]) -> tuple[Attack[Any] | None, Attackers]:
    """The attack of `[attack]` and its attackers; (None, no attackers) without that table or with `name = "none"`."""
    table = with_named_settings(tables, "attack")
    table.pop(EXCEEDS_F, None)
    name = table.get("name")
    if "attack" not in tables or name == NO_ATTACK:
        return None, Attackers(attackers=0, forge_extras=False)
    settings = {k: v for k, v in table.items() if k not in ATTACKER_KEYS}
    attackers = convert("attack", {k: v for k, v in table.items() if k in ATTACKER_KEYS}, Attackers)
    if isinstance(name, str) and name in ATTACKS:
        check_keys("attack", settings, ["name", *(f.name for f in dataclasses.fields(ATTACKS[name])), *ATTACKER_KEYS])
    elif name is not None and not isinstance(name, str):
        for key in settings.keys() - {"name"}:
            raise SpecError(f"attack.{key}: the attack is an object that has its settings already; remove {key}")
    attack = build("attack", settings if name is None or isinstance(name, str) else name, ATTACKS, ATTACK_METHODS)
    if attackers.forge_extras is None:
        attackers = dataclasses.replace(attackers, forge_extras=attack.knowledge in ("colluding", "omniscient"))
    elif attackers.forge_extras and attack.knowledge == "white_box":
        raise SpecError("attack.forge_extras: true, but a white-box attack optimises the update alone; leave it out")
    return attack, attackers


def make_model(table: Mapping[str, Any]) -> Model:
    """The model of `[model]`; the settings of a built-in model are checked against its signature."""
    settings = dict(table)
    make = settings.pop("name", "mlp")
    options: dict[str, Any] = {key: settings.pop(key) for key in ("double_softmax", "buffers") if key in settings}
    if isinstance(make, str):
        make = look_up("model.name", make, MODELS)
    if not callable(make):
        raise SpecError(f"model.name: {make!r} is not callable; give (shape, classes) -> nn.Module or an nn.Module")
    if make in MODELS.values():
        parameters = inspect.signature(make).parameters.items()
        defaults = {name: p.default for name, p in parameters if p.default is not p.empty}
        check_keys("model", settings, [*defaults, "name", "double_softmax", "buffers"])
        for key, value in settings.items():
            if type(value) is not type(defaults[key]):
                raise SpecError(f"model.{key}: expected {type(defaults[key]).__name__}, got {value!r}")
        settings = defaults | settings
    return convert("model", {"make": make, "settings": settings, **options}, Model)
