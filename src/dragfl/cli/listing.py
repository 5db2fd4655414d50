"""`dragfl list [algorithms|aggregates|...]`"""

from __future__ import annotations

import argparse
import dataclasses
from collections.abc import Mapping
from typing import Any

KINDS = ("algorithms", "corrections", "aggregates", "servers", "attacks", "partitions", "datasets", "models")


def add(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    command = commands.add_parser("list", help="what a spec can name", description="What a spec can name.")
    command.add_argument("kind", nargs="?", choices=KINDS, help="default: all")
    command.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    from rich.console import Console
    from rich.table import Table

    console = Console()
    for kind in [args.kind] if args.kind else KINDS:
        table = Table(title=kind, title_justify="left", title_style="bold", header_style="bold")
        for heading in ("name", "what", "settings (default)"):
            table.add_column(heading)
        for row in rows(kind):
            table.add_row(*row)
        console.print(table)
    return 0


def rows(kind: str) -> list[tuple[str, str, str]]:
    """(name, what it is, its settings) of everything of this kind, read off the parts themselves."""
    from dragfl import algorithms, attacks, data, models
    from dragfl.data.partitions import PARTITIONS

    if kind == "algorithms":
        return [
            (
                name,
                f"{preset.correction} x {preset.aggregate} x {preset.server}; {preset.paper}",
                _preset(preset),
            )
            for name, preset in algorithms.PRESETS.items()
        ]
    if kind == "datasets":
        return [(name, "", "") for name in data.SOURCES]
    registries: dict[str, Mapping[str, Any]] = {
        "corrections": algorithms.PARTS["correction"],
        "aggregates": algorithms.PARTS["aggregate"],
        "servers": algorithms.PARTS["server"],
        "attacks": attacks.ATTACKS,
        "partitions": PARTITIONS,
        "models": models.MODELS,
    }
    return [(name, _first_line(part), ", ".join(settings(part))) for name, part in registries[kind].items()]


def _preset(preset: Any) -> str:
    from dragfl.algorithms import PARTS

    shown = []
    for flat, places in preset.flat().items():
        part, name = places[0]
        default = next(f.default for f in dataclasses.fields(PARTS[part][getattr(preset, part)]) if f.name == name)
        shown.append(f"{flat} ({preset.defaults.get(part, {}).get(name, default)})")
    return ", ".join(shown)


def settings(part: Any) -> list[str]:
    """`name (default)` of every setting."""
    if dataclasses.is_dataclass(part):
        return [
            f.name if f.default is dataclasses.MISSING else f"{f.name} ({f.default})" for f in dataclasses.fields(part)
        ]
    import inspect

    return [
        f"{name} ({p.default})" for name, p in inspect.signature(part).parameters.items() if p.default is not p.empty
    ]


def _first_line(part: Any) -> str:
    return (part.__doc__ or "").strip().splitlines()[0] if part.__doc__ else ""
