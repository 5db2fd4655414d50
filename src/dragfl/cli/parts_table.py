"""The parts that a spec can name, as rows: for `dragfl list` and for the documentation.

`python -m dragfl.cli.parts_table` prints docs/algorithm-table.md.
"""

from __future__ import annotations

import dataclasses
import inspect
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from dragfl.algorithms import PARTS, PRESETS, Preset
from dragfl.attacks import ATTACKS
from dragfl.cli.costs import Cost, cost_of
from dragfl.config.docstrings import symbols
from dragfl.data import DATASETS
from dragfl.data.partitions import PARTITIONS
from dragfl.models import MODELS

REGISTRIES: dict[str, Mapping[str, Any]] = {
    "corrections": PARTS["correction"],
    "aggregates": PARTS["aggregate"],
    "servers": PARTS["server"],
    "attacks": ATTACKS,
    "partitions": PARTITIONS,
    "models": MODELS,
}


def list_rows(kind: str) -> list[tuple[str, str, str]]:
    """(name, description, settings) of everything of this kind."""
    if kind == "algorithms":
        return [
            (a.name, f"{a.parts}; {a.paper}", ", ".join(f"{s.name} ({s.default})" for s in a.settings))
            for a in describe_algorithms()
        ]
    if kind == "datasets":
        return [(name, about, "") for name, about in DATASETS.items()]
    return [
        (name, _first_line(part), ", ".join(map(str, _settings_of(part)))) for name, part in REGISTRIES[kind].items()
    ]


def list_values(kind: str) -> list[dict[str, Any]]:
    """Everything of this kind as plain values, for JSON: name, description, and settings with their defaults."""
    if kind == "algorithms":
        return [row.values() for row in describe_algorithms()]
    if kind == "datasets":
        return [{"name": name, "description": about, "settings": []} for name, about in DATASETS.items()]
    return [
        {"name": name, "description": _first_line(part), "settings": [s.values() for s in _settings_of(part)]}
        for name, part in REGISTRIES[kind].items()
    ]


def _first_line(part: Any) -> str:
    return (part.__doc__ or "").strip().partition("\n")[0]


def _settings_of(part: Any) -> list[SettingRow]:
    """Every setting of a class, or of a function that has a default."""
    if dataclasses.is_dataclass(part):
        return [SettingRow(f.name, _default(f), symbols(part).get(f.name, "")) for f in dataclasses.fields(part)]
    parameters = inspect.signature(part).parameters.items()
    return [SettingRow(name, p.default, "") for name, p in parameters if p.default is not p.empty]


def _default(field: dataclasses.Field[Any]) -> Any:
    factory = field.default_factory
    return field.default if factory is dataclasses.MISSING else factory()


@dataclass(frozen=True)
class SettingRow:
    """One setting of an algorithm, with its meaning or its symbol in the paper."""

    name: str
    default: Any  # MISSING: it must be given
    symbol: str

    def __str__(self) -> str:
        return self.name if self.default is dataclasses.MISSING else f"{self.name} ({self.default})"

    def values(self) -> dict[str, Any]:
        """Plain values; a setting without a default is required."""
        from dragfl.report.export import plain

        required = self.default is dataclasses.MISSING
        meaning = {"meaning": self.symbol} if self.symbol else {}
        return {
            "name": self.name,
            "required": required,
            "default": None if required else plain(self.default),
            **meaning,
        }


@dataclass(frozen=True)
class AlgorithmRow:
    """A named algorithm: its parts, settings and costs."""

    name: str
    paper: str
    parts: str
    settings: list[SettingRow]
    cost: Cost

    def values(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        correction, aggregate, server = self.parts.split(" x ")
        return {
            "name": self.name,
            "description": self.parts,
            "paper": self.paper,
            "correction": correction,
            "aggregate": aggregate,
            "server": server,
            "settings": [setting.values() for setting in self.settings],
            "vectors_down": self.cost.down,
            "vectors_up": self.cost.up,
            "client_state": list(self.cost.client),
            "server_state": list(self.cost.server),
            "root_data": self.cost.root,
            "streams": self.cost.streams,
        }

    @property
    def streams(self) -> str:
        if not self.cost.streams:
            return "no"
        return "yes" if self.cost.passes == 1 else "yes, except round 0"

    @property
    def server(self) -> str:
        return ", ".join([*self.cost.server, *(["root data"] if self.cost.root else [])]) or "–"

    @property
    def short_server(self) -> str:
        """The same for a narrow column."""
        return self.server.replace("root data", "root")

    @property
    def client(self) -> str:
        return ", ".join(self.cost.client) or "–"

    @property
    def short_paper(self) -> str:
        """Author and year, for a narrow column."""
        return self.paper.split(",")[0].replace(" et al.", "")

    @property
    def vectors(self) -> str:
        return f"{self.cost.down}/{self.cost.up}"


def describe_algorithms() -> list[AlgorithmRow]:
    """Every named algorithm."""
    return [
        AlgorithmRow(
            name,
            preset.paper,
            f"{preset.correction} x {preset.aggregate} x {preset.server}",
            list(_preset_settings(preset)),
            cost_of(preset.build()),
        )
        for name, preset in PRESETS.items()
    ]


def _preset_settings(preset: Preset) -> Iterator[SettingRow]:
    for flat, places in preset.flat().items():
        part, name = places[0]
        default = next(f.default for f in dataclasses.fields(PARTS[part][getattr(preset, part)]) if f.name == name)
        meanings = {symbols(PARTS[part][getattr(preset, part)]).get(name, ""): None for part, name in places}
        yield SettingRow(flat, preset.defaults.get(part, {}).get(name, default), "; ".join(meanings))


MARKDOWN_HEAD = """\
# Algorithms

Generated by `python -m dragfl.cli.parts_table`; `dragfl list algorithms` prints the same. An algorithm is correction ×
aggregate × server step. Parts can be combined freely, except some corrections with [robust
aggregates](robust.md#corrections-under-robust-rules).

| name | paper | made of | vectors down/up | client state | server state | streams |
|---|---|---|---|---|---|---|
"""
MARKDOWN_SETTINGS = """
*Vectors* have the length of the model and are counted for each client and round, the model and the update included;
`bytes_down` and `bytes_up` of a run are measured. *Client state* is kept by every client between rounds, *server state*
by the server, in addition to the model. An algorithm *streams* if updates are added up as they arrive, in the memory of
a few, however many clients take part.

## Settings

| name | setting | default | symbol or meaning |
|---|---|---|---|
"""


def markdown() -> str:
    """The page of algorithms for the documentation."""
    rows = describe_algorithms()
    page = MARKDOWN_HEAD
    for row in rows:
        parts = row.parts.replace(" x ", " × ")
        cells = (f"`{row.name}`", row.paper, parts, row.vectors, row.client, row.server, row.streams)
        page += "| " + " | ".join(cells) + " |\n"
    page += MARKDOWN_SETTINGS
    for row in rows:
        for i, setting in enumerate(row.settings):
            name = f"`{row.name}`" if i == 0 else ""
            page += f"| {name} | `{setting.name}` | {setting.default} | {setting.symbol} |\n"
    return page


if __name__ == "__main__":
    sys.stdout.write(markdown())
