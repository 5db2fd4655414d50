"""The section of one panel on the page: figure, table, what was tuned, the command, the settings."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

import tomli_w

from dragfl.config.overrides import override
from dragfl.reproduction import plots as figures
from dragfl.reproduction import results
from dragfl.reproduction.claims import served_by
from dragfl.reproduction.cost import duration
from dragfl.reproduction.curves import curve_rows
from dragfl.reproduction.figure import Panel
from dragfl.reproduction.plan import Scale
from dragfl.reproduction.summary import Summary


def section(one: Panel, s: Summary, folder: str) -> str:
    seeds = len(s.seeds)
    served = served_by(one.name)
    parts = [
        f"## {title(one)}",
        "",
        f"{one.figure}. The paper: {one.paper}" if one.name.startswith("fig") else one.paper,
    ]
    if served:
        parts += ["", f"Claims: {', '.join(served)}."]
    parts += ["", f"![{one.title}: test accuracy by round]({folder}/{results.FIGURES}/{one.name}.png)", ""]
    parts += [figures.caption(one, s), "", *_markdown(curve_rows(one, s)), "", *_tuning(one, s)]
    parts += [
        f"<!-- test: skip, it takes {duration(s.seconds / 2)} -->",
        "```console",
        _command(one, s, seeds),
        "```",
        "",
    ]
    parts += [*_settings(one, s)]
    return "\n".join(parts)


def _markdown(rows: Sequence[Sequence[str]]) -> list[str]:
    heads, *body = [f"| {' | '.join(cells)} |" for cells in rows]
    return [heads, "|" + "---|" * len(rows[0]), *body]


def _tuning(one: Panel, s: Summary) -> list[str]:
    """What was tried, and what was taken."""
    lines = []
    for curve, chosen in s.tuned.items():
        tune = one[curve].tune
        trials = [t for t in s.tuning if t["curve"] == curve]
        if tune is None or not trials:
            continue
        tried = "; ".join(
            f"{t['value']}: {f'> {s.rounds}' if t['rounds'] is None else t['rounds']} rounds, "
            f"best {100 * t['best']:.1f} %"
            for t in trials
        )
        seeds = ", ".join(map(str, sorted({t["seed"] for t in trials})))
        lines += [f"{one[curve].label}: `{tune.key}` = {chosen}, chosen on seed {seeds} ({tried}).", ""]
    return lines


def _command(one: Panel, s: Summary, seeds: int) -> str:
    words = ["dragfl", "paper", one.name, "--seeds", str(seeds), *(["--quick"] if s.quick else [])]
    for change in s.changes:
        key, _, value = change.partition("=")
        if key == "rounds":
            words += ["--rounds", value]
        elif key != "data.dataset":
            words.append(change)
    return shlex.join([*words, *([f"data.dataset={s.dataset}"] if len(one.datasets) > 1 else [])])


def _settings(one: Panel, s: Summary) -> list[str]:
    lines = []
    if one.like is None:
        scale = Scale(s.dataset, tuple(s.seeds), s.quick, tuple(s.changes))
        tables = override(dict(one.experiment), scale.words(one))
        lines += ["What all curves share:", "", "```toml", tomli_w.dumps(tables).strip(), "```", ""]
    else:
        changed = f", with {', '.join(f'`{word}`' for word in one.set)}" if one.set else ""
        lines += [f"The experiment of {one.like}{changed}.", ""]
    own = {curve.name: curve.set for curve in one.curve}
    lines += ["| curve | settings |", "|---|---|"]
    lines += [f"| {label} | {' '.join(f'`{word}`' for word in words)} |" for label, words in own.items()]
    lines += ["", "On these the paper is silent, or its code differs from its text:", ""]
    lines += [f"- `{key}`: {text}" for key, text in one.assumed.items()]
    return lines


def title(one: Panel) -> str:
    return f"{one.name}: {one.title}"


def anchor(heading: str) -> str:
    """The anchor of a heading, as GitHub makes it."""
    kept = "".join(c for c in heading.lower() if c.isalnum() or c in "-_ ")
    return kept.strip().replace(" ", "-")
