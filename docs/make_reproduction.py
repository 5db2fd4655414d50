"""Write docs/reproduction.md, a page for each figure and the plots, from the summaries in docs/reproduction.

    python docs/make_reproduction.py

`dragfl reproduce FIGURE ... --out docs/reproduction` writes the summaries; nothing is run here. docs/reproduction.md
has the findings, docs/reproduction/FIGURE.md plot, table, command and settings. Written by hand, in the same folder:
`summary.md`, with which the page of findings opens, `causes.md`, the discussion, and `README.md`. The claims about the
theory are judged from docs/theory/fixed-points.json, which docs/figures/measure_fixed_points.py writes.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import tomli_w

from dragfl.config.overrides import override
from dragfl.report.figures.files import FIGURES
from dragfl.reproduction.claims import claims_for, load_causes
from dragfl.reproduction.figure import Curve, Figure, figure_names, load_figure
from dragfl.reproduction.formatting import format_comparison, metric_name
from dragfl.reproduction.plots import caption
from dragfl.reproduction.results import (
    curve_table,
    load_summaries,
    plot_figures,
    shortened_note,
    total_seconds,
    verdict_rows,
)
from dragfl.reproduction.rows import Row
from dragfl.reproduction.run_time import format_duration
from dragfl.reproduction.runs import FigureRequest
from dragfl.reproduction.summary import WINDOW, Summaries, Summary
from dragfl.reproduction.theory_claims import Measured, theory_rows
from dragfl.reproduction.verdicts import TARGET_STEP, Verdict, judge_comparison
from dragfl.runs.tuning import TUNING_SEEDS

DOCS = Path(__file__).resolve().parent
SUMMARY, CAUSES = "summary.md", "causes.md"
THEORY = "theory/fixed-points.json"
BY_HAND = (SUMMARY, CAUSES, "README.md")
SOURCE = "../src/dragfl/reproduction"
MEASURED = "measured: median (interval)"
SOURCES = {"paper": "Claims of the paper", "ours": "Claims beyond the paper"}
INTRODUCTION = """# Reproducing the paper

All figures of Zhu, Zhang, Liu, Wang, *DRAG: Divergence-based Adaptive Aggregation in Federated Learning on Non-IID
Data* (arXiv 2309.01779), reproduced with `dragfl reproduce`, and a verdict on every claim. The paper has no tables and
no repetitions, so the comparison is with its figures and text. Each figure has a [page](#runs) with its plot, table,
command and settings. `python docs/make_reproduction.py` generates all pages from the
[summaries](reproduction/README.md) of the runs; only the next section and the discussion of the causes are written by
hand.
"""
DATASETS = {
    "emnist47": "`emnist47` has 93,629 training images of the 47 classes of EMNIST balanced, 659 to 2,400 a class, and "
    "4,700 test images, 100 a class. It is not the official balanced split (112,800 + 18,800) of the paper: accuracies "
    "are not directly comparable.",
    "emnist": "`emnist` is the official balanced split: 112,800 + 18,800 images of 47 classes.",
    "cifar10": "`cifar10` is CIFAR-10 as published, 50,000 + 10,000 images, without augmentation.",
}
RULES = f"""## Rules for a verdict

Claims are data ([claims.toml]({SOURCE}/claims.toml)): curves, a metric, a relation, a threshold and a number of seeds.
Verdicts are computed by [verdicts.py]({SOURCE}/verdicts.py) from the summaries alone.

- *Rounds to target*: the first evaluated round with at least the target accuracy. A run that does not reach it is
  censored: it needs more rounds than it had. A ratio with a censored denominator is an upper bound ("at most"), one
  with a censored numerator a lower bound ("at least"); with both it is open. A run that diverged never
  reaches it; of two such runs neither is faster.
- If no run of a comparison reaches the target, the comparison is judged at the highest multiple of
  {100 * TARGET_STEP:g} % that the best competitor reaches in the median over seeds (a rank: at the highest that all
  curves reach, without those that diverged), and the remark says so.
- *Final accuracy*: the mean over the evaluations of the last {WINDOW} rounds (of the last half of a shorter run),
  within the rounds that all runs of the comparison have; its standard deviation likewise. A run that diverged is
  judged at chance level, 1 / classes.
- All curves of a figure are evaluated on the model that the server sends out next. Where an algorithm's own paper
  evaluates another model, a second curve shows that for the same runs.
- Curves are compared seed by seed (same partition, same initial model), with the best competitor of each seed, so the
  median of the ratios need not be the ratio of the medians; and with each competitor alone. The page names the
  competitor with the best median.
- PASS: the relation holds for the median and for all seeds. MIXED: for the median but not for all seeds (a seed that
  censoring leaves open does not count as one for which it holds), or for some of the settings that the paper leaves
  open and not for others. FAIL: the median contradicts it, for all settings. UNDECIDED: censoring leaves the median
  open, or there are fewer seeds than the claim needs. NOT RUN: runs are missing. All comparisons of a claim must hold:
  it fails if one fails, also where others are open.
- Intervals are paired 95 % bootstrap intervals of the median over seeds. With at most five seeds this is the range of
  the seeds, which contains the true median with a probability of 75 % for three seeds and 94 % for five.
- *Step / mean update*: the norm of the server's step over the norm of the mean update, the median over rounds.
- Tuned settings are selected on a tenth of the training data, by the median over seeds {TUNING_SEEDS[0]} to
  {TUNING_SEEDS[-1]}, which are never used for a verdict; the final runs use all training data.
- Computing times are sums of the wall-clock times of the rounds, on one core, without pauses. Times of missing runs are
  estimated from them.
"""


def write_pages(folder: Path) -> list[Path]:
    """Write the pages and plots from the summaries in a folder; return the paths. Stale pages are deleted."""
    pages = pages_of(folder)
    for path in folder.glob("*.md"):
        if path not in pages and path.name not in BY_HAND:
            path.unlink()
    for path, text in pages.items():
        path.write_text(text)
    summaries = load_summaries(folder)
    plots = plot_figures(summaries, list(summaries), folder)
    for name in plots:
        (folder / FIGURES / f"{name}.pdf").unlink()  # the page shows the PNG
    return [*pages, *(folder / FIGURES / f"{name}.png" for name in plots)]


def pages_of(folder: Path) -> dict[Path, str]:
    """The page of findings FOLDER.md and FOLDER/FIGURE.md for each figure, from the files of the folder."""
    texts = [path.read_text() if (path := folder / name).is_file() else "" for name in (SUMMARY, CAUSES)]
    summaries = load_summaries(folder)
    theory = folder.parent / THEORY
    measured = json.loads(theory.read_text()) if theory.is_file() else None
    findings = {folder.with_suffix(".md"): findings_page(summaries, *texts, folder.name, measured)}
    return findings | {
        folder / f"{name}.md": figure_page(name, summaries, f"../{folder.name}.md") for name in summaries
    }


def findings_page(
    summaries: Summaries, summary: str, causes: str, folder: str, measured: Measured | None = None
) -> str:
    """The page of findings as Markdown; `folder` has the pages of the figures, `measured` what the theory claims."""
    names, rows = figure_names(), verdict_rows(summaries)
    sections = [
        INTRODUCTION,
        f"## What holds\n\n{summary.strip()}" if summary.strip() else "",
        verdicts_section(rows),
        theory_section(measured) if measured else "",
        rivals_section(rows, folder),
        open_section(rows),
        runs_section(summaries, folder),
        causes_section(summaries, causes, folder),
        RULES,
    ]
    missing = [f"- `dragfl reproduce {n}`: {load_figure(n).title}" for n in names if n not in summaries]
    if missing:
        note = "`dragfl reproduce --list` estimates the time for each."
        sections.append("\n".join(["## Not run yet", "", note, "", *missing]))
    return "\n".join(section.strip() + "\n" for section in sections if section.strip())


def verdicts_section(rows: Sequence[Row]) -> str:
    """The number of claims by verdict, then a table of the paper's claims and one of ours."""
    counts = [["", *(verdict.value for verdict in Verdict)]]
    for source, title in SOURCES.items():
        verdicts = [row.verdict for row in rows if row.source == source]
        counts.append([title, *(str(verdicts.count(verdict.value)) for verdict in Verdict)])
    lines = ["## Verdicts", "", *markdown_table(counts), "", "The rules are [below](#rules-for-a-verdict).", ""]
    for source, title in SOURCES.items():
        section = ["section"] if source == "paper" else []
        table = [["claim", *section, "statement", MEASURED, "verdict", "remark"]]
        for row in (row for row in rows if row.source == source):
            place = [row.section] if section else []
            table.append(
                [row.claim, *place, row.text, "<br>".join(row.measured) or "—", f"**{row.verdict}**", row.remark]
            )
        lines += [f"### {title}", "", *markdown_table(table), ""]
    return "\n".join(lines)


def theory_section(measured: Measured) -> str:
    """The claims about the theory, which need no training runs."""
    table = [["claim", "statement", "measured", "verdict", "remark"]]
    table += [[r.claim, r.text, r.measured, f"**{r.verdict.value}**", r.remark] for r in theory_rows(measured)]
    note = (
        "From formulas and simulations with known constants ([fixed points](fixed-points.md)), not from training runs."
    )
    return "\n".join(["## Theory", "", note, "", *markdown_table(table)])


def rivals_section(rows: Sequence[Row], folder: str) -> str:
    """Every comparison with several competitors, one competitor at a time; claims with the same one share a row."""
    claims: dict[tuple[str, ...], dict[str, None]] = {}
    for row in rows:
        for rival in row.rivals:
            if rival.verdict != Verdict.NOT_RUN.value:
                claims.setdefault((rival.figure, rival.metric, rival.measured, rival.verdict), {})[row.claim] = None
    if not claims:
        return ""
    table = [["claims", "figure", "metric", MEASURED, "verdict"]]
    table += [[", ".join(names), link(figure, folder), *cells] for (figure, *cells), names in claims.items()]
    note = "The claims with several competitors, one competitor at a time; the relation is that of the claim."
    return "\n".join(["## Competitor by competitor", "", note, "", *markdown_table(table)])


def open_section(rows: Sequence[Row]) -> str:
    """The undecided claims, and those without runs, with what they are missing."""
    open_rows = [row for row in rows if row.verdict in (Verdict.UNDECIDED.value, Verdict.NOT_RUN.value)]
    if not open_rows:
        return ""
    table = [["claim", "verdict", "missing"]]
    table += [[row.claim, row.verdict, row.missing or row.remark] for row in open_rows]
    note = "What the open claims are missing; the table of the verdicts has their measurements. Times are for one core."
    return "\n".join(["## Open claims", "", note, "", *markdown_table(table)])


def runs_section(summaries: Summaries, folder: str) -> str:
    if not summaries:
        return "No figure has been run yet."
    used = list(summaries.values())
    notes = [f"- {text}" for name, text in DATASETS.items() if any(s.dataset == name for s in used)]
    machines = sorted({record.machine for s in used for record in s.records if record.machine})
    notes += [f"- Machine {i}: {machine}." for i, machine in enumerate(machines, 1)]
    total = format_duration(total_seconds(used))
    notes.append(f"- {total} of computing on one core in total: the sum over rounds, tuning included, without pauses.")
    notes.append("- To repeat it: `dragfl reproduce`. It executes only the runs that are missing.")
    rows = [["figure", "topic", "data", "maximum rounds", "seeds", "commit", "machine", "computing, one core"]]
    for figure in (load_figure(name) for name in figure_names() if name in summaries):
        s = summaries[figure.name]
        rounds = str(s.rounds) if s.rounds == figure.rounds else f"{s.rounds} instead of {figure.rounds}"
        seeds = sorted({len(records) for records in s.curves.values() if records})
        commits = sorted({record.commit for record in s.records if record.commit})
        numbers = sorted({machines.index(record.machine) + 1 for record in s.records if record.machine})
        rows.append(
            [
                link(figure.name, folder),
                figure.topic,
                s.dataset,
                rounds,
                " to ".join(map(str, dict.fromkeys((seeds[0], seeds[-1])))) if seeds else "0",
                ", ".join(commits) or "—",
                ", ".join(map(str, numbers)) or "—",
                format_duration(total_seconds([s])),
            ]
        )
    return "\n".join(["## Runs", "", *notes, "", *markdown_table(rows)])


def causes_section(summaries: Summaries, discussion: str, folder: str) -> str:
    """Every cause with its measured comparisons, then the discussion written by hand."""
    lines = []
    for cause in load_causes():
        results = [judge_comparison(comparison, 1, summaries) for comparison in cause.comparisons]
        rows = [
            [link(r.comparison.figure, folder), metric_name(r.comparison, summaries), format_comparison(r, summaries)]
            for r in results
            if r.verdict is not Verdict.NOT_RUN
        ]
        if rows:
            table = markdown_table([["figure", "metric", MEASURED], *rows])
            lines += [f"**{cause.title}.** {cause.text}", "", *table, ""]
    if not lines and not discussion.strip():
        return ""
    return "\n".join(["## Differences between paper and measurement, and their causes", "", *lines, discussion.strip()])


def figure_page(name: str, summaries: Summaries, findings: str) -> str:
    """Plot, table, tuning, command and settings of a figure; `findings` is the link to the page of findings."""
    figure, s = load_figure(name), summaries[name]
    of_paper = figure.name.startswith("fig")
    claims = claims_for(figure.name)
    lines = "\n".join(
        [
            f"# {figure.name}: {figure.title}",
            "",
            f"{figure.topic}. The paper: {figure.paper}" if of_paper else figure.paper,
            "",
            *([f"Claims: {', '.join(claims)}; [verdicts]({findings}#verdicts)."] if claims else []),
            *([] if claims else [f"[Findings of all figures]({findings})."]),
            "",
            f"![{figure.title}: test accuracy by round]({FIGURES}/{figure.name}.png)",
            "",
            caption(figure, s),
            "",
            *markdown_table(curve_table(s)),
            "",
            *([note, ""] if (note := shortened_note(s)) else []),
            *tuning_lines(figure, s),
            "## Command",
            "",
            f"<!-- test: skip, it takes {format_duration(total_seconds([s]) / 2)} -->",
            "```console",
            reproduce_command(figure, s),
            "```",
            "",
            "## Settings",
            "",
            *settings_lines(figure, summaries),
        ]
    )
    return lines.strip() + "\n"


def tuning_lines(figure: Figure, s: Summary) -> list[str]:
    """The tried values of each tuned setting with the results of the tuning seeds, and the selected value."""
    trials: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for trial in s.tuning:
        if s.tuned.get(trial["curve"]) is not None:
            trials.setdefault((trial["curve"], str(trial["value"])), []).append(trial)
    rows = [["tuned setting", "value", "seeds", "rounds to the target", "best accuracy", "selected"]]
    for (curve, value), group in trials.items():
        tune = figure[curve].tune
        if tune is not None:
            rounds = [f"> {s.rounds}" if trial["rounds"] is None else str(trial["rounds"]) for trial in group]
            accuracies = [f"{100 * trial['best']:.1f} %" for trial in group]
            seeds = [str(trial["seed"]) for trial in group]
            mark = "yes" if group[0]["value"] == s.tuned[curve] else ""
            setting = f"{figure[curve].label}: `{tune.key}`"
            rows.append([setting, value, *(", ".join(cells) for cells in (seeds, rounds, accuracies)), mark])
    return [*markdown_table(rows), ""] if len(rows) > 1 else []


def reproduce_command(figure: Figure, s: Summary) -> str:
    words = ["dragfl", "reproduce", figure.name, "--seeds", str(len(s.seeds)), *(["--quick"] if s.quick else [])]
    for change in s.changes:
        key, _, value = change.partition("=")
        if key == "rounds":
            words += ["--rounds", value]
        elif key != "data.dataset":
            words.append(change)
    if shortened_note(s):
        words.append("--until-decided")
    return shlex.join([*words, *([f"data.dataset={s.dataset}"] if len(figure.datasets) > 1 else [])])


def settings_lines(figure: Figure, summaries: Summaries) -> list[str]:
    s = summaries[figure.name]
    if figure.based_on is None:
        request = FigureRequest(figure, s.dataset, tuple(s.seeds), s.quick, tuple(s.changes))
        tables = override(dict(figure.experiment), request.overrides)
        lines = ["Settings of all curves:", "", "```toml", tomli_w.dumps(tables).strip(), "```"]
    else:
        changed = f", with {', '.join(f'`{word}`' for word in figure.set)}" if figure.set else ""
        base = f"[{figure.based_on}]({figure.based_on}.md)" if figure.based_on in summaries else figure.based_on
        lines = [f"The experiment of {base}{changed}."]
    curves = [[curve.full_label, curve_settings(figure, curve)] for curve in figure.curves]
    lines += ["", *markdown_table([["curve", "settings"], *curves])]
    lines += ["", "Settings that the paper does not state, or that differ between its text and its code:", ""]
    return lines + [f"- `{key}`: {text}" for key, text in figure.assumed.items()]


def curve_settings(figure: Figure, curve: Curve) -> str:
    if curve.of is not None:
        return f"the runs of {figure[curve.of].label}, evaluated on the model of its paper"
    return " ".join(f"`{word}`" for word in curve.set)


def link(figure: str, folder: str) -> str:
    """A link from the page of findings to the page of a figure."""
    return f"[{figure}]({folder}/{figure}.md)"


def markdown_table(rows: Sequence[Sequence[str]]) -> list[str]:
    escaped = [[cell.replace("|", "\\|").replace("\n", " ") for cell in row] for row in rows]
    header, *body = [f"| {' | '.join(row)} |" for row in escaped]
    return [header, "|" + "---|" * len(rows[0]), *body]


if __name__ == "__main__":
    write_pages(DOCS / "reproduction")
