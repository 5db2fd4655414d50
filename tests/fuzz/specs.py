"""Random specs: a valid one from the dataclasses and registries of the package, then changes of all kinds.

`specs` draws tables, `texts` their TOML with or without damage, `overrides` words of the command line. All of them use
`tiny` data, so that a spec that is accepted trains in milliseconds.
"""

from __future__ import annotations

import copy
import dataclasses
import datetime
import functools
import inspect
import math
import typing
from collections.abc import Mapping
from typing import Any, Literal, get_args, get_origin

import tomli_w
import torch
from hypothesis import strategies as st

from dragfl.aggregates.robust import PREAGGREGATORS
from dragfl.algorithms import CHAIN_PARTS, PARTS, PRESETS
from dragfl.attacks import ATTACKS
from dragfl.config.spec import PLAIN_TABLES, TABLES
from dragfl.config.tables import Attackers, Clients, Root, Top
from dragfl.data.dataset import Dataset, from_tensors
from dragfl.data.partitions import PARTITIONS
from dragfl.models import MODELS
from dragfl.schedules import Schedule
from dragfl.training.augment import AUGMENTATIONS

Tables = dict[str, Any]
Path = tuple[str | int, ...]

HOSTILE: list[Any] = [
    math.nan, math.inf, -math.inf, 1e308, -1e308, 5e-324, -0.0, 0.5, -1.5,
    0, -1, 1, 3, 10**6, 10**9 + 1, 2**31, 2**63 - 1, 2**63, 2**64, -(2**63) - 1, 10**40,
    True, False, "", " ", "0", "nan", "none", "auto", "é\u202e\U0001f600", "a\nb", "\x00", "\ud800", "a" * 5000, "..",
    ":", "a:", ":b", "os:nothing", "os:path", "math:pi", "builtins:print", "object:x", "no.such:thing", ".:x", "a b:c",
    "builtins:len", "builtins:int", "builtins:dict", "builtins:exit", "sys:exit", "numpy:sum", "torch.nn:Linear",
    "pathlib:Path", "functools:partial", "types:SimpleNamespace", "random:random", "json:dumps", "typing:Any",
    "collections:namedtuple", "dataclasses:dataclass", "torch:randn", "numpy:array", "builtins:object", "enum:Enum",
    "npz:nowhere.npz", "text:nowhere?window=x", "idx:", "+", "nnm+", "nnm+median", "median+nnm+krum", "drag+krum",
    [], [1], [1, 2], [2, 1], [0, -1], [1.5, "x"], [[]], [{}], [math.nan] * 2, ["nnm", "median"], ["a:b"], [1] * 999,
    {}, {"name": "drag"}, {"name": 3}, {"kind": "iid"}, {"kind": "linear"}, {"chain": []}, {"chain": ["nnm", 3]},
    {"start": 1.0}, {"start": 0.1, "kind": "linear", "rounds": 2}, {"start": 0.1, "kind": "cosine", "rounds": 0},
    {"start": math.nan, "kind": "inverse_sqrt", "period": 0}, {"": {"": {}}}, {"a.b": 1}, {"é": 1},
    datetime.date(2020, 1, 1), datetime.datetime(2020, 1, 1, tzinfo=datetime.UTC), datetime.time(1),
]  # fmt: skip
OBJECTS: list[Any] = [None, object(), 1j, b"x", {1: 2}, {None: 1}, (1, 2), {1, 2}, len, int, torch.nn.Linear(6, 3)]


def tiny() -> Dataset:
    """60 + 20 points of three classes in six dimensions, in ten groups."""
    draws = torch.Generator().manual_seed(7)
    y = torch.arange(80) % 3
    x = torch.randn(3, 6, generator=draws)[y] + 0.7 * torch.randn(80, 6, generator=draws)
    data = from_tensors(x[:60], y[:60], x[60:], y[60:], name="tiny")
    return dataclasses.replace(data, groups=torch.arange(60) // 6)


def images() -> Dataset:
    """The same for networks of images: one channel of 16 x 16."""
    flat = tiny()
    x, test_x = (part.repeat(1, 43)[:, :256].reshape(-1, 1, 16, 16) for part in (flat.x, flat.test_x))
    return from_tensors(x, flat.y, test_x, flat.test_y, name="images")


DATASET, IMAGES = f"{__name__}:tiny", f"{__name__}:images"
NUMBERS = [0, 1, 2, -1, 7, 100, 10**7, 0.0, 1.0, 1.5, 1e-12, 1e-300, 1e12, 1e300]
hostile = st.one_of(
    *[st.sampled_from(HOSTILE)] * 6, *[st.sampled_from(NUMBERS)] * 6, st.integers(), st.floats(), st.text(max_size=8)
)


def value_of(hint: Any) -> st.SearchStrategy[Any] | None:
    """Plausible values of a type, most of them valid; None where a spec has none."""
    if get_origin(hint) is Literal:
        return st.sampled_from(get_args(hint))
    if get_origin(hint) is tuple:
        return st.sampled_from([[1, 2], [2, 2]])
    if get_args(hint):
        found = [value for kind in get_args(hint) if (value := value_of(kind)) is not None]
        return st.one_of(found) if found else None
    schedule = st.fixed_dictionaries({"start": st.floats(0, 1)}, optional={"end": st.floats(0, 1)})
    return {
        bool: st.booleans(),
        int: st.integers(1, 4),
        float: st.sampled_from([0.1, 0.3, 0.5, 0.9]),
        Schedule: schedule.flatmap(lambda t: st.sampled_from([t, {**t, "kind": "linear", "rounds": 2}])),
    }.get(hint)


@functools.cache
def keys_of(part: Any) -> dict[str, st.SearchStrategy[Any]]:
    """Key -> its plausible values, of a dataclass or of the settings of a function."""
    if dataclasses.is_dataclass(part):
        hints = typing.get_type_hints(part)
        hints = {f.name: hints[f.name] for f in dataclasses.fields(part)}
    else:
        parameters = inspect.signature(part).parameters
        hints = {name: type(p.default) for name, p in parameters.items() if p.default is not p.empty}
    values = {name: value_of(hint) for name, hint in hints.items()}
    return {name: value for name, value in values.items() if value is not None}


@st.composite
def table_of(draw: st.DrawFn, part: Any, most: int = 2, without: tuple[str, ...] = ()) -> Tables:
    """A table with the required keys of a part and up to `most` others."""
    known = keys_of(part)
    fields = dataclasses.fields(part) if dataclasses.is_dataclass(part) else ()
    required = [f.name for f in fields if f.default is f.default_factory is dataclasses.MISSING and f.name in known]
    others = sorted(known.keys() - {*required, *without})
    chosen = draw(st.lists(st.sampled_from(others), max_size=most, unique=True)) if others else []
    return {name: draw(known[name]) for name in [*required, *chosen]}


@st.composite
def named(draw: st.DrawFn, registry: Mapping[str, Any], key: str = "name") -> Tables:
    """A part of a registry with up to two settings."""
    name = draw(st.sampled_from(sorted(registry)))
    return {key: name, **draw(table_of(registry[name]))}


@st.composite
def algorithms(draw: st.DrawFn) -> Tables:
    """A preset with settings, or a composition of parts, or a chain."""
    form = draw(st.sampled_from(["preset", "preset", "parts", "chain"]))
    if form == "parts":
        return {part: draw(named(PARTS[part])) for part in draw(st.sets(st.sampled_from(sorted(PARTS)), min_size=1))}
    if form == "chain":
        before = draw(st.lists(st.sampled_from(sorted(PREAGGREGATORS)), min_size=1, max_size=2))
        last = draw(st.sampled_from(sorted(CHAIN_PARTS)))
        return {"aggregate": {"chain": [*before, last], **draw(st.sampled_from([{}, {"f": 1}]))}}
    name = draw(st.sampled_from(sorted(PRESETS)))
    flat = {
        key: keys_of(PARTS[p][getattr(PRESETS[name], p)]).get(s) for key, [(p, s), *_] in PRESETS[name].flat().items()
    }
    known = {key: value for key, value in flat.items() if value is not None}
    chosen = draw(st.lists(st.sampled_from(sorted(known)), max_size=2, unique=True)) if known else []
    return {"name": name, **{key: draw(known[key]) for key in chosen}}


@st.composite
def valid(draw: st.DrawFn) -> Tables:
    """Tables that `load` accepts, unless parts or settings do not fit together."""
    top = draw(table_of(Top, 1, ("stop_at_target", "name", "rounds")))
    clients = {"total": 6, "local_steps": 2, "batch_size": 5, **draw(table_of(Clients, 2, ("total", "per_round")))}
    if "local_epochs" in clients:
        del clients["local_steps"]
    picture = not draw(st.integers(0, 5))
    if picture and draw(st.booleans()):
        clients["augment"] = draw(st.sampled_from(sorted(AUGMENTATIONS)))
    tables = {**top, "rounds": 2, "clients": clients, "algorithm": draw(algorithms())}
    tables["data"] = {"dataset": IMAGES if picture else DATASET, "partition": draw(named(PARTITIONS, "kind"))}
    small = [{"name": "logistic"}, {"name": "mlp", "hidden": 4}]
    large = [{"name": "cnn", "channels": 2}, {"name": "resnet", "width": 4, "groups": 2}]
    tables["model"] = (
        draw(st.sampled_from(large if picture else small)) if draw(st.integers(0, 9)) else draw(named(MODELS))
    )
    if draw(st.integers(0, 6)):
        tables["root"] = {"size": 12, **draw(table_of(Root))}
    if draw(st.booleans()):
        tables["attack"] = {**draw(named(ATTACKS)), "attackers": 1, **draw(table_of(Attackers, 1, ("fraction",)))}
    for key in draw(st.sets(st.sampled_from(sorted(PLAIN_TABLES)), max_size=2)):
        tables[key] = draw(table_of(PLAIN_TABLES[key]))
    return tables


def paths_of(table: Mapping[str, Any], above: Path = ()) -> list[Path]:
    """Every key path of nested tables."""
    found: list[Path] = []
    for key, value in table.items():
        found += [(*above, key), *(paths_of(value, (*above, key)) if isinstance(value, Mapping) else [])]
    return found


KNOWN_PATHS: list[Path] = [
    *((f.name,) for f in dataclasses.fields(Top)),
    *((table,) for table in TABLES),
    *((t, f.name) for t, kind in PLAIN_TABLES.items() for f in dataclasses.fields(kind)),
    *(("clients", f.name) for f in dataclasses.fields(Clients)),
    *(("root", f.name) for f in dataclasses.fields(Root)),
    *(("attack", f.name) for f in dataclasses.fields(Attackers)),
    *(("algorithm", part) for part in PARTS),
    ("algorithms", "drag"), ("attacks", "alie"), ("model", "double_softmax"), ("model", "buffers"),
]  # fmt: skip


@st.composite
def changed(draw: st.DrawFn, tables: Tables, values: st.SearchStrategy[Any] = hostile) -> Tables:
    """The tables with one change: another value, a missing, unknown or misspelt key, a value one level too deep."""
    tables = copy.deepcopy(tables)
    path = draw(st.sampled_from(paths_of(tables)) | st.sampled_from(KNOWN_PATHS))
    place: Any = tables
    for key in path[:-1]:
        place = place.setdefault(key, {}) if isinstance(place, dict) else None
        if not isinstance(place, dict):
            return tables
    key, kind = (
        path[-1],
        draw(st.sampled_from(["value", "value", "value", "delete", "misspell", "unknown", "deeper", "move"])),
    )
    if kind == "value" or key not in place:
        place[key] = copy.deepcopy(draw(values))
    elif kind == "delete":
        del place[key]
    elif kind == "misspell":
        name = str(key)
        cut = draw(st.integers(0, max(0, len(name) - 1)))
        place[name[:cut] + draw(st.sampled_from(["", "x", "_", "é"])) + name[cut + 1 :]] = place.pop(key)
    elif kind == "unknown":
        inside = place[key] if isinstance(place[key], dict) else place
        inside[draw(st.text(max_size=6) | st.sampled_from(["lr", "f", "name", "kind", "c"]))] = draw(values)
    elif kind == "deeper":
        place[key] = draw(st.sampled_from([{"x": place[key]}, [place[key]], {key: place[key]}, str(place[key])]))
    else:
        place[key] = copy.deepcopy(draw(st.sampled_from([tables[k] for k in tables])))
    return tables


@st.composite
def specs(draw: st.DrawFn) -> Tables:
    """A valid spec with up to three changes."""
    tables = draw(valid())
    values = hostile | st.sampled_from(OBJECTS) if draw(st.integers(0, 4)) == 0 else hostile
    for _ in range(draw(st.sampled_from([0, 0, 0, 1, 1, 1, 1, 2]))):
        tables = draw(changed(tables, values))
    return tables


def as_toml(tables: Tables) -> str:
    """TOML of tables, without what it cannot write."""
    try:
        return tomli_w.dumps(tables)
    except (TypeError, ValueError, AttributeError, UnicodeError):
        return "\n".join(f"{key} = {value!r}" for key, value in tables.items())


@st.composite
def texts(draw: st.DrawFn) -> str:
    """The TOML of a spec, sometimes with characters removed or inserted."""
    text = as_toml(draw(specs()))
    for _ in range(draw(st.sampled_from([0, 0, 1, 2]))):
        at = draw(st.integers(0, len(text)))
        cut = draw(st.integers(0, 3))
        words = [
            '"',
            "'",
            "[",
            "]",
            "[[",
            "{",
            "}",
            "=",
            "\n",
            "#",
            ".",
            ",",
            "\x00",
            "é",
            '"""',
            "[" * 500,
            "a.a.a = 1\n",
        ]
        text = text[:at] + draw(st.sampled_from(words) | st.just("")) + text[at + cut :]
    return text


OVERRIDABLE: list[Path] = [
    *KNOWN_PATHS, ("algorithm", "name"), ("algorithm", "c"), ("algorithm", "aggregate", "f"),
    ("attack", "name"), ("model", "name"), ("data", "dataset"), ("data", "partition"), ("data", "partition", "kind"),
]  # fmt: skip


@st.composite
def overrides(draw: st.DrawFn) -> list[str]:
    """Up to three words `key=value`, or something like them."""
    found = []
    for _ in range(draw(st.integers(1, 3))):
        path, value = ".".join(map(str, draw(st.sampled_from(OVERRIDABLE)))), draw(hostile)
        literal = str(value) if isinstance(value, dict) else as_toml({"v": value}).partition("=")[2].strip()
        forms = [f"{path}={literal}"] * 6 + [f"{path}={value}", f"{path}.x={literal}", f"{path}={literal}={literal}"]
        forms += [path, literal, f"={literal}", f".{path}={literal}", f"{path}=={literal}"]
        found.append(draw(st.sampled_from(forms)))
    return found
