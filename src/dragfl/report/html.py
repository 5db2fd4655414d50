"""The HTML page of a report: one self-contained file, with style, script, numbers and figures inside.

Rows of the tables and curves are numbered, by which `page.js` filters them.
"""

from __future__ import annotations

import re
import shlex
from base64 import b64encode
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from dragfl.atomic import write_text
from dragfl.report import figures
from dragfl.report.export import check_folder, differing_settings, plain
from dragfl.report.figures.files import FIGURES, KINDS, Drawing, require_packages
from dragfl.report.groups import Group, seed_of, shared_value
from dragfl.report.labels import NOT_SET, flatten, format_value
from dragfl.report.nodes import COLUMNS, NOTE, NUMBERS, describe_missing, node_tables
from dragfl.report.numbers import format_diverged, format_range, format_seeds, unbroken
from dragfl.report.summary import Summary
from dragfl.report.tables import Row, format_rows, split_by_problem, table_note
from dragfl.report.targets import rounds_completed
from dragfl.report.theory import theory_table, theory_values
from dragfl.runs.directory import SPEC, Run

COSTS = ("bytes", "seconds")  # columns of the second table


def write_page(summary: Summary, out: Path, *, title: str | None = None, pdf: bool = False) -> Path:
    """Draw the figures into out/figures, then write out/report.html with them inside."""
    require_packages("matplotlib", "jinja2")
    check_folder(out)
    groups, rows = summary.groups, summary.rows
    numbers = {row.label: i for i, row in enumerate(rows)}
    columns = [name for name in format_rows(rows)[0] if name != "seed" or len({row.seeds for row in rows}) > 1]
    clients, costs = ([name for name in columns if name.startswith(begin)] for begin in ("client", COSTS))
    common, differing = compare_settings(groups)
    drawn = figures.draw_figures(groups, out / FIGURES, KINDS if pdf else ("png",))
    return write_template(
        out / "report.html",
        "page.html.j2",
        title=title or _title(groups),
        facts=_facts(summary),
        alerts=_alerts(rows),
        summary=_table(rows, [name for name in columns if name not in (*clients, *costs)]),
        costs=_table(rows, ["run", *costs]),
        clients=_table(rows, ["run", *clients]) if clients else None,
        classes=_class_table(rows),
        comparisons=[comparison.lines() for comparison in summary.comparisons],
        nodes=_node_tables(groups),
        theory=theory_table(theory_values(groups)),
        damaged=summary.damaged,
        note=table_note(rows),
        figures=drawn,
        data={"runs": _search_texts(rows), "figures": _charts(drawn, summary)},
        labels=[group.label for group in groups],
        common=common,
        differing=differing,
        environment=environment(groups),
        runs=[_describe_run(group, run) | {"run": numbers[group.label]} for group in groups for run in group.runs],
    )


def _table(rows: Sequence[Row], columns: Sequence[str]) -> dict[str, Any]:
    """The columns, and for each heading the lines: number and state of the row, a badge, and the cells."""
    numbers = {row.label: i for i, row in enumerate(rows)}
    blocks = []
    for heading, part in split_by_problem(rows):  # they may have shorter labels
        same = [row for row in rows if len(part) == len(rows) or row.problem == part[0].problem]
        lines = [_line(row, columns, numbers[full.label]) for row, full in zip(part, same, strict=True)]
        blocks.append((heading, lines))
    return {"columns": columns, "blocks": blocks}


def _line(row: Row, columns: Sequence[str], number: int) -> dict[str, Any]:
    """That a row has diverged is a badge next to its label; its cells would repeat it."""
    badge = format_diverged(row.diverged_at) if row.all_diverged else ""
    cells = [row.cells().get(name, NOT_SET) for name in columns]
    if badge:
        cells = [NOT_SET if cell == badge else cell.replace(f" ({badge})", "") for cell in cells]
    return {
        "run": number,
        "state": "diverged" if badge else "unfinished" if row.unfinished else "",
        "badge": badge,
        "cells": [re.sub(r"^not reached \((> [^)]+)\)", r"\1", cell) for cell in cells],  # the note explains "> N"
    }


def _alerts(rows: Sequence[Row]) -> list[tuple[str, list[tuple[str, str]]]]:
    """The rows with diverged and with unfinished runs, for the top of the page: (state, (label, detail) of each)."""

    def seeds(row: Row, found: Sequence[int]) -> str:
        return "" if len(found) == len(row.seeds) else f", seed {format_seeds(found)}"

    diverged = [(r.label, f"round {format_range(r.diverged_at)}{seeds(r, r.diverged)}") for r in rows if r.diverged]
    unfinished = []
    for row in rows:
        if rounds := [n for seed, n in zip(row.seeds, row.rounds, strict=True) if seed in row.unfinished]:
            text = f"{format_range(rounds)} of {row.planned} rounds{seeds(row, row.unfinished)}"
            unfinished.append((row.label, text))
    return [(state, found) for state, found in (("Diverged", diverged), ("Unfinished", unfinished)) if found]


def _search_texts(rows: Sequence[Row]) -> list[str]:
    """For each row what the filter searches: label, data, attack, state, and the settings in which rows differ."""
    texts, attacked = [], any(row.attack for row in rows)
    for row, settings in zip(rows, differing_settings(rows), strict=True):
        states = ["diverged"] * bool(row.diverged) + ["unfinished"] * bool(row.unfinished)
        pairs = [f"{key}={format_value(value)}" for key, value in settings.items()]
        problem = row.problem if attacked else row.problem[:2]
        texts.append(" ".join([row.label, row.algorithm, *problem, *states, *pairs]).lower())
    return texts


def _charts(drawn: Mapping[str, Drawing], summary: Summary) -> dict[str, Any]:
    """The line plots as numbers, each line with the number of its row."""
    numbers: dict[Any, int] = {row.label: i for i, row in enumerate(summary.rows)}
    numbers |= {(g.attack_label, g.label_within_attack): numbers[g.label] for g in summary.groups}
    charts = {name: plain(drawing.chart) for name, drawing in drawn.items() if drawing.chart}
    for chart in charts.values():
        for plot in chart["plots"]:
            for line in plot["lines"]:  # with a subplot for each attack, labels do not have the attack
                line["run"] = numbers.get((plot["key"], line["label"]), numbers.get(line["label"]))
    return charts


def _node_tables(groups: Sequence[Group]) -> dict[str, Any] | None:
    """The nodes of every run on Flower, with the results that are missing; None without such a run."""
    tables = [(label, describe_missing(rows), [row.cells() for row in rows]) for label, _, rows in node_tables(groups)]
    return {"columns": COLUMNS, "numbers": NUMBERS, "note": NOTE, "tables": tables} if tables else None


def _class_table(rows: Sequence[Row]) -> list[tuple[int, str, list[str]]]:
    """(number, label, accuracy of each class in percent) of the rows that have them; all have equally many entries."""
    most = max((len(row.class_accuracy) for row in rows), default=0)

    def texts(row: Row) -> list[str]:
        known = [NOT_SET if value is None else f"{100 * value:.1f}" for value in row.class_accuracy]
        return known + [NOT_SET] * (most - len(known))

    return [(i, row.label, texts(row)) for i, row in enumerate(rows) if row.class_accuracy]


def write_template(page: Path, template: str, **values: Any) -> Path:
    """Fill a template of this package and write the page; all values from runs are escaped."""
    from jinja2 import Environment, PackageLoader, StrictUndefined
    from markupsafe import Markup

    package = PackageLoader("dragfl.report", ".")
    jinja = Environment(
        loader=package,
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )

    def data_uri(figure: str) -> str:
        png = page.parent / FIGURES / f"{figure}.png"
        return "data:image/png;base64," + b64encode(png.read_bytes()).decode("ascii")

    jinja.globals["file"] = lambda name: Markup(package.get_source(jinja, name)[0])
    jinja.filters |= {"data_uri": data_uri, "shell": shlex.quote, "unbroken": unbroken}
    page.parent.mkdir(parents=True, exist_ok=True)
    write_text(page, jinja.get_template(template).render(**values))
    return page


def _title(groups: Sequence[Group]) -> str:
    """`drag, fedavg on digits`."""
    names = list(dict.fromkeys(group.algorithm for group in groups))
    algorithms = ", ".join(names) if len(names) <= 4 else f"{len(names)} algorithms"
    dataset = shared_value(_all_runs(groups), "data.dataset")
    return algorithms if dataset is None else f"{algorithms} on {format_value(dataset)}"


def _facts(summary: Summary) -> list[tuple[str, str]]:
    """What was run and the best accuracy, as (name, value) pairs."""
    rows, runs = summary.rows, summary.found.runs
    shared = {
        "dataset": "data.dataset",
        "partition": "data.partition.kind",
        "clients": "clients.total",
        "clients per round": "clients.per_round",
        "attackers": "attack.attackers",
    }
    counts = {
        "runs": len(runs),
        "damaged": len(summary.damaged),
        "tuning runs left out": summary.found.tuning,
        "final runs left out": summary.found.not_selected,
        "unfinished": sum(len(row.unfinished) for row in rows),
        "diverged": sum(len(row.diverged) for row in rows),
    }
    facts = [(name, str(count)) for name, count in counts.items() if count]
    facts += [(n, format_value(v)) for n, key in shared.items() if (v := shared_value(runs, key)) is not None]
    if len(seeds := {row.seeds for row in rows}) == 1:
        facts.append(("seed", format_seeds(seeds.pop())))
    attacks = dict.fromkeys(group.attack for group in summary.groups if group.attack)
    facts += [("attack", ", ".join(attacks))] if attacks else []
    shown = (row for row in rows if row.best_accuracy and not row.all_diverged)
    best = max(shown, key=lambda r: r.best_accuracy.mean, default=None)  # type: ignore[union-attr]
    if best is not None and len({row.problem[0] for row in rows}) == 1:  # accuracies on other data do not compare
        facts.append(("best accuracy", f"{best.best_accuracy} ({best.label})"))
    nodes = [row for _, _, rows in node_tables(summary.groups) for row in rows]
    return [*facts, ("missing results", describe_missing(nodes))] if nodes else facts


def _all_runs(groups: Sequence[Group]) -> list[Run]:
    return [run for group in groups for run in group.runs]


def compare_settings(groups: Sequence[Group]) -> tuple[list[tuple[str, str]], list[tuple[str, list[str]]]]:
    """(settings that all groups share, settings with one value for each group), without names and seeds."""
    flats = [flatten(group.spec) for group in groups]
    keys = list(dict.fromkeys(key for flat in flats for key in flat if key not in ("name", "seed")))
    tables = list(dict.fromkeys(key.split(".")[0] for key in keys))
    keys.sort(key=lambda key: tables.index(key.split(".")[0]))  # the settings of a table stay together
    values = {key: [format_value(flat.get(key)) for flat in flats] for key in keys}
    common = [(key, found[0]) for key, found in values.items() if len(set(found)) == 1]
    return common, [(key, found) for key, found in values.items() if len(set(found)) > 1]


def environment(groups: Sequence[Group]) -> list[tuple[str, str]]:
    """Versions and machine from every run.json; where runs differ, all values are listed."""
    flats = [flatten(run.info) for run in _all_runs(groups)]
    keys = list(dict.fromkeys(key for flat in flats for key in flat if key not in ("seed", "id")))
    pairs = [(key, list(dict.fromkeys(format_value(flat.get(key)) for flat in flats))) for key in keys]
    return [(key, " | ".join(values)) for key, values in pairs if values != [NOT_SET]]


def _describe_run(group: Group, run: Run) -> dict[str, str]:
    """A line of the list of runs: label, name, seed, state, and the spec that repeats the run."""
    stopped_by = str((run.result or {}).get("stopped_by", "finished"))
    state = {"rounds": "finished", "target": "stopped at the target"}.get(stopped_by, stopped_by)
    if run.diverged_at is not None:
        state = format_diverged([run.diverged_at])
    return {
        "label": group.label,
        "name": run.name,
        "seed": str(seed_of(run)),
        "state": state if run.finished else f"unfinished, {rounds_completed(run)} rounds so far",
        "spec": str(run.path / SPEC),
    }
