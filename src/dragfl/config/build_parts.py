"""Build the objects that the tables of a spec describe: dataset, algorithm, attack and model. Imports no torch."""

from __future__ import annotations

import dataclasses
import inspect
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from dragfl.aggregates.function import function_rule
from dragfl.aggregates.robust import Chain
from dragfl.algorithms import CHAIN_PARTS, PARTS, PRESETS, as_chain, chain, describe_chain, expand
from dragfl.attacks import ATTACKS
from dragfl.attacks.function import function_attack
from dragfl.config.check_parts import check_words, needs_of
from dragfl.config.convert import check_keys, convert
from dragfl.config.overrides import ATTACKER_KEYS, EXCEEDS_F, NO_ATTACK, with_named_settings
from dragfl.config.registry import build, describe, look_up
from dragfl.config.tables import LARGEST, Attackers
from dragfl.data import DATASETS, FILE_KINDS
from dragfl.errors import SpecError, UnsafeSpec, nearest
from dragfl.models import MODELS
from dragfl.own_code import OBJECT, import_object, is_function, name_of, named_errors, parameters_of, spec_name
from dragfl.types import Algorithm, Attack

METHODS = {
    "correction": ("fields", "sends", "init", "needs", "broadcast", "affine", "client_finish", "server_finish"),
    "aggregate": ("init", "needs", "begin", "fold", "finish"),
    "server": ("init", "update"),
}
ATTACK_METHODS = ("knowledge", "init", "craft")


@dataclass(frozen=True)
class ChainTable:
    """`{chain = ["nnm", "median"], f = 2}`: names, or tables of a name and settings."""

    chain: list[Any]
    f: int | None = None


@dataclass(frozen=True)
class Model:
    """`[model]`: the function or module that makes the network, and its settings."""

    make: Any  # a class or function that makes an nn.Module (models/call.py), or an nn.Module
    settings: Mapping[str, Any] = field(default_factory=dict)
    source: str = ""  # the `module:attr` it was found under
    double_softmax: bool = False  # cross-entropy of softmax outputs, as in the authors' CIFAR-10 drift script
    buffers: Literal["refuse", "average"] = "refuse"  # BatchNorm statistics: an error, or averaged by the server


def check_dataset(given: Any) -> Any:
    """The dataset, if it is a known name, an importable `module:attr` or a Dataset; a function becomes its name."""
    if isinstance(given, str):
        kind, colon, _ = given.partition(":")
        if not colon and given not in DATASETS:
            raise SpecError(f"data.dataset: unknown dataset '{given}'{nearest(given, DATASETS)}")
        if colon and kind not in FILE_KINDS:
            import_object("data.dataset", given)
    elif callable(given):
        if (name := spec_name(given)).startswith(OBJECT):
            raise SpecError(f"data.dataset: {name_of(given)} cannot be imported by name; give the Dataset it returns")
        return name
    elif not hasattr(given, "inputs"):
        raise SpecError(
            f"data.dataset: {given!r} is no dataset; give a name such as 'digits', or a Dataset from Python"
        )
    return given


def check_named_settings(tables: Mapping[str, Any]) -> None:
    """Check every `[algorithms.NAME]` and `[attacks.NAME]`, whether or not the experiment uses it."""
    known: dict[str, Mapping[str, Any]] = {"algorithm": PRESETS, "attack": ATTACKS}
    for kind, names in known.items():
        for name, table in tables.get(f"{kind}s", {}).items():
            if name not in names and ":" not in name:
                raise SpecError(f"{kind}s.{name}: unknown {kind} '{name}'{nearest(name, names)}")
            if not isinstance(table, Mapping):
                raise SpecError(f"{kind}s.{name}: expected a table, got {table!r}; write [{kind}s.{name}]")
            named = {"name": name, **table}
            try:
                if kind == "algorithm":
                    _own_algorithm(name, dict(table)) if ":" in name else expand(named)
                else:
                    build_attack(named)
            except SpecError as error:
                raise SpecError(re.sub(rf"^{kind}(?=[.:])", f"{kind}s.{name}", str(error))) from None


def make_algorithm(tables: Mapping[str, Any]) -> Algorithm:
    """The algorithm of `[algorithm]`: a preset, a composition of parts, or the user's own."""
    table = with_named_settings(tables, "algorithm")
    name = table.get("name")
    if isinstance(name, str):
        own = ":" in name and "+" not in name  # with a plus it is a chain
    else:
        own = isinstance(name, Algorithm) or callable(name) or _kind_of(name, {}) is not None
    if own and not PARTS.keys() <= table.keys():  # with all parts spelled out the name is only a label
        return _own_algorithm(name, {k: v for k, v in table.items() if k != "name"})
    expanded = expand(table)
    try:
        parts = {part: make_part(part, expanded[part]) for part in PARTS}
    except UnsafeSpec:  # `dragfl resume` tells it from a damaged spec
        raise
    except SpecError as error:
        raise SpecError(_as_written(str(error), table, tables.get("algorithm", {}))) from error.__cause__
    return Algorithm(**parts, name=expanded["name"])


def _as_written(message: str, table: Mapping[str, Any], own: Mapping[str, Any]) -> str:
    """The message with the key of a preset, `algorithm.c` or `algorithms.drag.c`, for `algorithm.aggregate.c`."""
    name = table.get("name")
    for key, places in PRESETS[name].flat().items() if isinstance(name, str) and name in PRESETS else ():
        for part, setting in places:
            if key in table and re.match(rf"algorithm\.{part}\.{setting}[.:]", message):
                written = f"algorithm.{key}" if key in own else f"algorithms.{name}.{key}"
                return message.replace(f"algorithm.{part}.{setting}", written, 1)
    return message


def make_part(part: str, given: Any, where: str = "") -> Any:
    """A correction, aggregate or server step; the names in a chain become the parts they stand for."""
    where = where or f"algorithm.{part}"
    given = as_chain(given)
    if isinstance(given, Mapping) and given.get("name") == "chain" and "chain" in given:
        table = convert(f"algorithm.{part}", {k: v for k, v in given.items() if k != "name"}, ChainTable)
        links = enumerate(table.chain)
        made = [build(f"{where}.chain[{i}]", link, CHAIN_PARTS, (), wrap=function_rule) for i, link in links]
        try:
            given = chain(*made, f=table.f)
        except SpecError as error:
            raise SpecError(f"{where}.chain: {str(error).removeprefix('chain: ')}") from error.__cause__
    wrap = function_rule if part == "aggregate" else None
    return check_words(where, build(where, given, PARTS[part], METHODS[part], wrap=wrap), part)


def describe_part(part: Any, registry: Mapping[str, Any]) -> dict[str, Any]:
    """The inverse of building it: a table with its name and settings; a chain has the names of its parts."""
    return describe_chain(part) if isinstance(part, Chain) else describe(part, registry)


def _own_algorithm(own: Any, settings: dict[str, Any]) -> Algorithm:
    """The user's own: an `Algorithm`, a function of the settings that returns one, or one part of it.

    A part of the user's own is an algorithm of its name; the other parts are those of the table, or FedAvg's.
    """
    where = "algorithm.name"
    found = import_object(where, own) if isinstance(own, str) else own
    if kind := _kind_of(found, settings):
        parts = {part: settings.pop(part) for part in PARTS if part in settings}
        if kind in parts:
            raise SpecError(f"algorithm.{kind}: {own} is the {kind} already; remove one of the two")
        made = make_part(kind, {"name": own, **settings} if callable(found) else found, where="algorithm")
        if settings and not callable(found):
            raise SpecError(f"{where}: {own} is an object, so it takes no settings; got {settings!r}")
        name = own if isinstance(own, str) else str(describe_part(made, PARTS[kind])["name"])
        return dataclasses.replace(make_algorithm({"algorithm": {**parts, kind: made}}), name=name)
    if callable(found):
        try:
            inspect.signature(found).bind(**settings)
        except TypeError as error:
            raise SpecError(f"{where}: {own} does not take {settings!r}: {error}") from None
        with named_errors(str(own)):
            found = found(**settings)
    elif settings:
        raise SpecError(f"{where}: {own} is an object, so it takes no settings; got {settings!r}")
    if not isinstance(found, Algorithm):
        raise SpecError(f"{where}: {own} is a {type(found).__name__}; it must be a dragfl.Algorithm or return one")
    for part in PARTS:
        make_part(part, getattr(found, part))
    return found


def _kind_of(found: Any, settings: Mapping[str, Any]) -> str | None:
    """Which part of an algorithm a class, an object or a function of the updates is; None if it is none."""
    if isinstance(found, Algorithm):
        return None
    for part, method in (("aggregate", "fold"), ("correction", "client_finish"), ("server", "update")):
        if hasattr(found, method) and hasattr(found, "init"):
            return part
    if not is_function(found) or "Algorithm" in str(getattr(found, "__annotations__", {}).get("return", "")):
        return None
    for first in parameters_of("algorithm.name", found).values():  # updates have no default, unlike most settings
        positional = first.kind in (first.POSITIONAL_ONLY, first.POSITIONAL_OR_KEYWORD)
        return "aggregate" if positional and first.default is first.empty and first.name not in settings else None
    return None


def needs_root(algorithm: Algorithm) -> bool:
    """Whether the algorithm needs trusted root data."""
    return any(needs_of(part) & {"root", "directions"} for part in (algorithm.correction, algorithm.aggregate))


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
    elif name is not None and not isinstance(name, str) and not callable(name):
        for key in settings.keys() - {"name"}:
            raise SpecError(f"attack.{key}: the attack is an object that has its settings already; remove {key}")
    attack = build_attack(settings if name is None or isinstance(name, str) or callable(name) else name)
    if attackers.forge_extras is None:
        attackers = dataclasses.replace(attackers, forge_extras=attack.knowledge in ("colluding", "omniscient"))
    elif attackers.forge_extras and attack.knowledge == "white_box":
        raise SpecError("attack.forge_extras: true, but a white-box attack optimises the update alone; leave it out")
    return attack, attackers


def build_attack(given: Any) -> Any:
    """The attack of a name, a table of a name and settings, a function or an object."""
    return check_words("attack", build("attack", given, ATTACKS, ATTACK_METHODS, wrap=function_attack), "attack")


def make_model(table: Mapping[str, Any]) -> Model:
    """The model of `[model]`; the settings of a built-in model are checked against its signature."""
    settings = dict(table)
    make = settings.pop("name", "mlp")
    options: dict[str, Any] = {key: settings.pop(key) for key in ("double_softmax", "buffers") if key in settings}
    source = make if isinstance(make, str) and ":" in make else ""
    if isinstance(make, str):
        make = look_up("model.name", make, MODELS)
    if not callable(make):
        raise SpecError(f"model.name: {make!r} is not callable; give an nn.Module, its class, or a function")
    if make in MODELS.values():
        parameters = inspect.signature(make).parameters.items()
        defaults = {name: p.default for name, p in parameters if p.default is not p.empty}
        check_keys("model", settings, [*defaults, "name", "double_softmax", "buffers"])
        for key, value in settings.items():
            if type(value) is not type(defaults[key]):
                raise SpecError(f"model.{key}: expected {type(defaults[key]).__name__}, got {value!r}")
            if isinstance(value, int) and value > LARGEST:
                raise SpecError(f"model.{key}: {value} is above {LARGEST}; give a number that fits in memory")
        settings = defaults | settings
    return convert("model", {"make": make, "settings": settings, "source": source, **options}, Model)
