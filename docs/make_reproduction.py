"""Write docs/reproduction.md and its plots from the summaries in docs/reproduction: python docs/make_reproduction.py

`dragfl reproduce FIGURE ... --out docs/reproduction` writes the summaries; nothing is run here. The discussion on the
page is `causes.md` in the same folder.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path

import tomli_w

from dragfl.config.overrides import override
from dragfl.report.figures.files import FIGURES
from dragfl.reproduction.claims import Comparison, claims_for, load_causes
from dragfl.reproduction.figure import Figure, figure_names, load_figure
from dragfl.reproduction.formatting import METRIC_NAMES, format_comparison
from dragfl.reproduction.plots import caption
from dragfl.reproduction.results import (
    count_verdicts,
    curve_table,
    load_summaries,
    plot_figures,
    total_seconds,
    verdict_rows,
)
from dragfl.reproduction.run_time import format_duration
from dragfl.reproduction.runs import FigureRequest
from dragfl.reproduction.summary import WINDOW, Summaries, Summary
from dragfl.reproduction.verdicts import REQUIRED_FRACTION, Verdict, judge_comparison, target_of
from dragfl.runs.tuning import TUNING_SEEDS

DOCS = Path(__file__).resolve().parent
CAUSES = "causes.md"
SOURCE = "../src/dragfl/reproduction"
INTRODUCTION = """# Reproducing the paper

All figures of Zhu, Zhang, Liu, Wang, *DRAG: Divergence-based Adaptive Aggregation in Federated Learning on Non-IID
Data* (arXiv 2309.01779), reproduced with `dragfl reproduce`, and a verdict on every claim. The paper has no tables and
no repetitions, so the comparison is with its figures and text. `python docs/make_reproduction.py` generates this page
from the summaries in [reproduction/](reproduction); only the discussion of the causes is written by hand.
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

- *Rounds to target*: the first evaluated round with at least the target accuracy (evaluation every 10 rounds). Censored
  at the maximum number of rounds: "not reached" means more rounds than that. A ratio with a censored denominator is an
  upper bound ("at most"); a censored numerator fails; with both censored the claim is UNDECIDED.
- *Final accuracy*: the mean over the evaluations of the last {WINDOW} rounds (of the last half of a shorter run). A run
  that diverged has final accuracy 0 and reaches no target.
- PASS: the relation holds for the median over seeds and for at least {100 * REQUIRED_FRACTION:.0f} % of the seeds.
  Curves are compared seed by seed (same partition, same initial model), with the best competitor of each seed, so the
  median of the ratios need not be the ratio of the medians. UNDECIDED: fewer seeds than the claim needs. NOT RUN:
  runs are missing. All comparisons of a claim must hold.
- *Aggregate / mean update*: the norm of the aggregate over the norm of the mean update, before server step, momentum or
  a tuned server learning rate; the median over rounds.
- Tuned settings are selected on a tenth of the training data, by the median over seeds {TUNING_SEEDS[0]} to
  {TUNING_SEEDS[-1]}, which are never used for a verdict; the final runs use all training data.
"""


def write_page(folder: Path, page: Path) -> list[Path]:
    """Write the page and its plots from the summaries in a folder; return the paths."""
    summaries = load_summaries(folder)
    plots = plot_figures(summaries, list(summaries), folder)
    for name in plots:
        (folder / FIGURES / f"{name}.pdf").unlink()  # the page shows the PNG
    causes = folder / CAUSES
    page.write_text(render_page(summaries, causes.read_text() if causes.is_file() else "", folder.name))
    return [page, *(folder / FIGURES / f"{name}.png" for name in plots)]


def render_page(summaries: Summaries, causes: str, folder: str) -> str:
    """The page as Markdown."""
    names = figure_names()
    sections = [
        INTRODUCTION,
        runs_section(summaries),
        verdicts_section(summaries),
        causes_section(summaries, causes),
    ]
    sections += [RULES, *(figure_section(load_figure(n), summaries[n], folder) for n in names if n in summaries)]
    missing = [f"- `dragfl reproduce {n}`: {load_figure(n).title}" for n in names if n not in summaries]
    if missing:
        note = "`dragfl reproduce --list` estimates the time for each."
        sections.append("\n".join(["## Not run yet", "", note, "", *missing]))
    return "\n".join(section.strip() + "\n" for section in sections if section.strip())


def runs_section(summaries: Summaries) -> str:
    if not summaries:
        return "No figure has been run yet."
    used = list(summaries.values())
    notes = [f"- {text}" for name, text in DATASETS.items() if any(s.dataset == name for s in used)]
    machines = "; ".join(sorted({s.machine for s in used if s.machine}))
    notes.append(f"- Machine: {machines}. {format_duration(total_seconds(used))} of computing on one core in total.")
    notes.append("- To repeat it: `dragfl reproduce`. It executes only the runs that are missing.")
    rows = [["figure", "topic", "data", "maximum rounds", "seeds", "computing, one core"]]
    for figure in (load_figure(name) for name in figure_names() if name in summaries):
        s = summaries[figure.name]
        rounds = str(s.rounds) if s.rounds == figure.rounds else f"{s.rounds} instead of {figure.rounds}"
        link = f"[{figure.name}](#{heading_anchor(heading(figure))})"
        rows.append([link, figure.topic, s.dataset, rounds, str(len(s.seeds)), format_duration(total_seconds([s]))])
    return "\n".join(["## Runs", "", *notes, "", *markdown_table(rows)])


def verdicts_section(summaries: Summaries) -> str:
    rows = verdict_rows(summaries)
    note = (
        f"{count_verdicts(rows)}. C1 to C10 and C17 to C24 are claims of the paper; the others cover what it leaves "
        "open. C32 to C34 are about its theory and are not judged by runs."
    )
    table = [["claim", "statement", "measured: median (range over seeds)", "verdict", "remark"]]
    table += [[row.claim, row.text, row.measured, f"**{row.verdict}**", row.remark] for row in rows]
    return "\n".join(["## Verdicts", "", note, "", *markdown_table(table)])


def causes_section(summaries: Summaries, discussion: str) -> str:
    """Every cause with its measured comparisons, then the discussion written by hand."""
    lines = []
    for cause in load_causes():
        results = [judge_comparison(comparison, 1, summaries) for comparison in cause.comparisons]
        rows = [
            [r.comparison.figure, metric_name(r.comparison, summaries), format_comparison(r, summaries)]
            for r in results
            if r.verdict is not Verdict.NOT_RUN
        ]
        if rows:
            table = markdown_table([["figure", "metric", "measured: median (range over seeds)"], *rows])
            lines += [f"**{cause.title}.** {cause.text}", "", *table, ""]
    if not lines and not discussion.strip():
        return ""
    return "\n".join(["## Differences between paper and measurement, and their causes", "", *lines, discussion.strip()])


def metric_name(comparison: Comparison, summaries: Summaries) -> str:
    target = target_of(comparison, summaries[comparison.figure])
    if comparison.metric == "rounds" and target is not None:
        return f"rounds to {100 * target:g} %"
    return METRIC_NAMES.get(comparison.metric, comparison.metric)


def figure_section(figure: Figure, s: Summary, folder: str) -> str:
    """Plot, table, tuning, command and settings of a figure."""
    of_paper = figure.name.startswith("fig")
    claims = claims_for(figure.name)
    return "\n".join(
        [
            f"## {heading(figure)}",
            "",
            f"{figure.topic}. The paper: {figure.paper}" if of_paper else figure.paper,
            *(["", f"Claims: {', '.join(claims)}."] if claims else []),
            "",
            f"![{figure.title}: test accuracy by round]({folder}/{FIGURES}/{figure.name}.png)",
            "",
            caption(figure, s),
            "",
            *markdown_table(curve_table(s)),
            "",
            *tuning_lines(figure, s),
            f"<!-- test: skip, it takes {format_duration(total_seconds([s]) / 2)} -->",
            "```console",
            reproduce_command(figure, s),
            "```",
            "",
            *settings_lines(figure, s),
        ]
    )


def tuning_lines(figure: Figure, s: Summary) -> list[str]:
    """The tried values of each tuned setting, and the selected one."""
    rows = [["tuned setting", "value", "seed", "rounds to the target", "best accuracy", "selected"]]
    for trial in s.tuning:
        tune, selected = figure[trial["curve"]].tune, s.tuned.get(trial["curve"])
        if tune is not None and selected is not None:
            rounds = f"> {s.rounds}" if trial["rounds"] is None else str(trial["rounds"])
            setting = f"{figure[trial['curve']].label}: `{tune.key}`"
            mark = "yes" if trial["value"] == selected else ""
            rows.append(
                [setting, str(trial["value"]), str(trial["seed"]), rounds, f"{100 * trial['best']:.1f} %", mark]
            )
    return [*markdown_table(rows), ""] if len(rows) > 1 else []


def reproduce_command(figure: Figure, s: Summary) -> str:
    words = ["dragfl", "reproduce", figure.name, "--seeds", str(len(s.seeds)), *(["--quick"] if s.quick else [])]
    for change in s.changes:
        key, _, value = change.partition("=")
        if key == "rounds":
            words += ["--rounds", value]
        elif key != "data.dataset":
            words.append(change)
    return shlex.join([*words, *([f"data.dataset={s.dataset}"] if len(figure.datasets) > 1 else [])])


def settings_lines(figure: Figure, s: Summary) -> list[str]:
    if figure.based_on is None:
        request = FigureRequest(figure, s.dataset, tuple(s.seeds), s.quick, tuple(s.changes))
        tables = override(dict(figure.experiment), request.overrides)
        lines = ["Settings of all curves:", "", "```toml", tomli_w.dumps(tables).strip(), "```"]
    else:
        changed = f", with {', '.join(f'`{word}`' for word in figure.set)}" if figure.set else ""
        lines = [f"The experiment of {figure.based_on}{changed}."]
    curves = [[curve.full_label, " ".join(f"`{word}`" for word in curve.set)] for curve in figure.curves]
    lines += ["", *markdown_table([["curve", "settings"], *curves])]
    lines += ["", "Settings that the paper does not state, or that differ between its text and its code:", ""]
    return lines + [f"- `{key}`: {text}" for key, text in figure.assumed.items()]


def heading(figure: Figure) -> str:
    return f"{figure.name}: {figure.title}"


def heading_anchor(heading: str) -> str:
    """The anchor of a heading on GitHub."""
    kept = "".join(c for c in heading.lower() if c.isalnum() or c in "-_ ")
    return kept.strip().replace(" ", "-")


def markdown_table(rows: Sequence[Sequence[str]]) -> list[str]:
    escaped = [[cell.replace("|", "\\|").replace("\n", " ") for cell in row] for row in rows]
    header, *body = [f"| {' | '.join(row)} |" for row in escaped]
    return [header, "|" + "---|" * len(rows[0]), *body]


if __name__ == "__main__":
    write_page(DOCS / "reproduction", DOCS / "reproduction.md")
