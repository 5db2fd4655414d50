"""The named algorithms: name -> correction x aggregate x server step, and the settings of each.

A correction or an aggregate with the attribute `paper` is a preset under its own name; the presets that combine several
parts are listed here. A preset takes the settings of its parts under flat names (`c`, `alpha`, `server_lr`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, is_dataclass
from typing import Any

from dragfl.aggregates import AGGREGATES
from dragfl.aggregates.function import function_rule
from dragfl.aggregates.robust import PREAGGREGATORS, Chain
from dragfl.corrections import CORRECTIONS
from dragfl.errors import SpecError, nearest
from dragfl.own_code import import_object, is_function, name_of, spec_name
from dragfl.server_steps import SERVER_STEPS
from dragfl.types import Algorithm

PARTS: dict[str, dict[str, Any]] = {
    "correction": CORRECTIONS,
    "aggregate": AGGREGATES,
    "server": SERVER_STEPS,
}
DEFAULTS = {"correction": "none", "aggregate": "mean", "server": "sgd"}


@dataclass(frozen=True)
class Preset:
    """A paper's algorithm as a composition of parts, with the paper's own defaults where they differ."""

    paper: str
    correction: str = "none"
    aggregate: str = "mean"
    server: str = "sgd"
    defaults: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)  # part -> settings

    def flat(self) -> dict[str, list[tuple[str, str]]]:
        """Flat setting name -> the (part, field) it sets; the server's lr is `server_lr`.

        A name that two parts share, as `weighting` in Mime, sets both.
        """
        names: dict[str, list[tuple[str, str]]] = {}
        for part, table in PARTS.items():
            for f in fields(table[getattr(self, part)]):
                name = "server_lr" if (part, f.name) == ("server", "lr") else f.name
                names.setdefault(name, []).append((part, f.name))
        return names

    def build(self) -> Algorithm:
        """The algorithm with its default settings."""
        parts = {part: kinds[getattr(self, part)](**self.defaults.get(part, {})) for part, kinds in PARTS.items()}
        return Algorithm(**parts)


def _presets_of(part: str) -> dict[str, Preset]:
    """One preset for every part with a `paper`, under the name of the part."""
    papers = {name: kind.paper for name, kind in PARTS[part].items() if hasattr(kind, "paper")}
    names: Any = {name: {part: name} for name in papers}
    return {name: Preset(paper, **names[name]) for name, paper in papers.items()}


PRESETS = {
    "fedavg": Preset("McMahan et al. 2017"),
    **_presets_of("correction"),
    **_presets_of("aggregate"),
    # Compositions of several parts, or under another name than the part.
    "cone_drag": Preset("dragfl, docs/cone.md", aggregate="cone_drag", server="momentum"),
    "fedprox": Preset("Li et al. 2020", correction="prox"),
    "adabest": Preset("Varno et al. 2022", correction="adabest", server="adabest"),
    "mimelite": Preset("Karimireddy et al. 2020b", correction="mime", defaults={"correction": {"lite": True}}),
    "fedavgm": Preset("Hsu et al. 2019", server="momentum"),
    "fedadam": Preset("Reddi et al. 2021", server="adam"),
    "fedyogi": Preset("Reddi et al. 2021", server="yogi"),
    "fedadagrad": Preset("Reddi et al. 2021", server="adagrad"),
    # Of dragfl itself: against client drift, with nothing to tune.
    "auto_scaffold": Preset("dragfl", correction="scaffold", aggregate="auto_momentum"),
}


def expand(table: Mapping[str, Any]) -> dict[str, Any]:
    """An `[algorithm]` table with its three parts spelled out: {name, correction, aggregate, server}.

    Given a preset's name and flat settings, or parts, or both. A name such as `nnm+median` is a chain.
    """
    given = dict(table)
    name = given.pop("name", None)
    if name is not None and not isinstance(name, str):
        raise SpecError(f"algorithm.name: {name!r} is no name; give one of {', '.join(PRESETS)}")
    parts = {part: as_chain(given.pop(part)) for part in PARTS if part in given}
    if len(parts) == len(PARTS):  # an expanded table: the name is only a label
        if given:
            raise SpecError(_stray(next(iter(given)), name, parts, {}))
        return {"name": name or _label(parts), **parts}
    if name is not None and "+" in name and "aggregate" not in parts:
        settings = {key: given.pop(key) for key in ("f",) if key in given}
        name, parts["aggregate"] = None, as_chain({"name": name, **settings})
    if name is not None and name not in PRESETS:
        raise SpecError(f"algorithm.name: unknown algorithm '{name}'{nearest(str(name), PRESETS)}")
    preset = PRESETS[name or "fedavg"]
    flat = preset.flat()
    tables = {part: {"name": getattr(preset, part), **preset.defaults.get(part, {})} for part in PARTS}
    for key, value in given.items():
        places = [(part, setting) for part, setting in flat.get(key, []) if part not in parts]
        if not places:
            raise SpecError(_stray(key, name, parts, flat))
        for part, setting in places:
            tables[part][setting] = value
    expanded = {**tables, **parts}
    return {"name": _label(expanded) if parts or name is None else name, **expanded}


CHAIN_PARTS: dict[str, Any] = {**PREAGGREGATORS, **{name: rule for name, rule in AGGREGATES.items() if name != "chain"}}


def chain(*parts: Any, f: int | None = None) -> Chain:
    """A chain of names, tables of a name and settings, or the parts themselves: chain("nnm", TrimmedMean(), f=4)."""
    return Chain(tuple(_chain_part(part) for part in parts), f)


def describe_chain(rule: Chain) -> dict[str, Any]:
    """The inverse of `chain`, as a spec writes it: names, or tables with the settings that differ from the default."""
    names = {kind: name for name, kind in CHAIN_PARTS.items()}
    parts: list[Any] = []
    for part in rule.chain:
        if hasattr(part, "described"):  # made of a function
            name, given = part.described()
            name = spec_name(part.function, name)
            parts.append({"name": name, **given} if given else name)
            continue
        name = names.get(type(part)) or spec_name(type(part))
        given = {f.name: getattr(part, f.name) for f in fields(part) if getattr(part, f.name) not in (None, f.default)}
        parts.append({"name": name, **given} if given else name)
    return {"name": "chain", "chain": parts, **({} if rule.f is None else {"f": rule.f})}


def _chain_part(given: Any) -> Any:
    """The part that a name, a function or a table of either stands for."""
    if not isinstance(given, str | Mapping) and not is_function(given):
        return given
    table = dict(given) if isinstance(given, Mapping) else {"name": given}
    name = table.pop("name", None)
    if isinstance(name, str) and ":" in name:
        kind = import_object("chain", name)
    elif isinstance(name, str) and name in CHAIN_PARTS:
        kind = CHAIN_PARTS[name]
    elif callable(name):
        kind, name = name, name_of(name)
    else:
        raise SpecError(f"chain: unknown part {name!r}{nearest(str(name), CHAIN_PARTS)}")
    if is_function(kind):
        return function_rule("chain", kind, table, name)
    if not is_dataclass(kind):
        raise SpecError(f"chain: {name} is neither a dataclass nor a function; see docs/extending.md")
    if not isinstance(kind, type):
        return kind
    for key in table:
        if key not in (known := [f.name for f in fields(kind)]):
            raise SpecError(f"chain: {name} has no setting '{key}'{nearest(key, known)}")
    return kind(**table)


def as_chain(part: Any) -> Any:
    """The table of a chain for `{chain = [...], f = 4}` and for the name `nnm+median`; any other part as it is."""
    table = part if isinstance(part, Mapping) else {"name": part}
    name = table.get("name")
    if isinstance(name, str) and "+" in name:
        return {**table, "name": "chain", "chain": name.split("+")}
    return {"name": "chain", **table} if "chain" in table else part


def _label(parts: Mapping[str, Any]) -> str:
    """What to call a composition: the names of its parts that are not FedAvg's, as in `drag+momentum`."""
    names = [_part_name(parts[part]) for part in PARTS if _part_name(parts[part]) != DEFAULTS[part]]
    return "+".join(names) or "fedavg"


def _part_name(part: Any) -> str:
    name = part.get("name", "") if isinstance(part, Mapping) else part
    if name == "chain" and isinstance(part, Mapping) and isinstance(part.get("chain"), list | tuple):
        return "+".join(_part_name(link) for link in part["chain"])
    return name if isinstance(name, str) else str(getattr(name, "__name__", type(name).__name__))


def _stray(key: str, name: str | None, parts: Mapping[str, Any], flat: Mapping[str, list[tuple[str, str]]]) -> str:
    """Why a key of the table has no place: its part is spelled out elsewhere, or there is no such setting."""
    if key in flat:
        part, setting = flat[key][0]
        return f"algorithm.{key}: the {part} is given by itself; write algorithm.{part}.{setting} instead"
    if not flat:
        return f"algorithm.{key}: the parts are given by themselves; write it as theirs: algorithm.aggregate.{key}"
    known = [*(k for k, places in flat.items() if places[0][0] not in parts), *PARTS, "name"]
    return f"algorithm.{key}: {name or 'fedavg'} has no setting '{key}'{nearest(key, known)}"
