"""docs/reproduction.md from the summaries beside it: verdicts, figures, tables and settings, and nothing by hand.

What only a person can say, the causes that the ablations point to, is read from `causes.md` in the folder of summaries.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import tomli_w

from dragfl.paper import figures, panel, results
from dragfl.paper.claims import served_by
from dragfl.paper.cost import duration
from dragfl.paper.judge import SHARE, Summaries, Verdict
from dragfl.paper.panel import TUNING_SEEDS, Curve, Panel
from dragfl.paper.spans import Span, middle
from dragfl.paper.summary import WINDOW, Record, Summary
from dragfl.paper.words import Row

HEAD = """# The paper again

Every figure of Zhu, Zhang, Liu, Wang, *DRAG: Divergence-based Adaptive Aggregation in Federated Learning on Non-IID Data*
(arXiv 2309.01779), run again with `dragfl paper`, and a verdict on every claim. The paper gives no tables and no repetitions;
its figures and words are what there is to compare with. This page is made of the runs' summaries in
[reproduction/](reproduction) by `python docs/make_reproduction.py`; nothing in it is typed in but the causes.
"""
DATA = {
    "emnist47": "`emnist47` is 93,629 + 4,700 real EMNIST images of the 47 balanced classes. It is not the official balanced "
    "split (112,800 + 18,800) that the paper names: accuracies are not comparable digit by digit with the paper's.",
    "emnist": "`emnist` is the official balanced split: 112,800 + 18,800 images of 47 classes.",
    "cifar10": "`cifar10` is CIFAR-10 as published, 50,000 + 10,000 photographs, without augmentation.",
}
RULES = f"""## How a verdict is made

A claim is data ([claims.toml](../src/dragfl/paper/claims.toml)): curves, a metric, a relation, a threshold, and the seeds it takes;
the judge is code ([judge.py](../src/dragfl/paper/judge.py)) and reads nothing but the summaries.

- *Rounds to target* is the first evaluated round of at least the target accuracy, every 10 rounds. It is censored at the rounds
  given to the run: "not reached" means more than that. A ratio with a censored denominator is "at most"; a censored numerator
  fails; both censored is UNDECIDED.
- *Final accuracy* is the mean over the evaluations of the last {WINDOW} rounds, *unrest* their standard deviation. A run that
  diverged has final accuracy 0 and reaches nothing.
- PASS needs the relation for the median over seeds and for at least {100 * SHARE:.0f} % of the seeds, compared seed by seed (the
  same split and the same first model). With fewer seeds than the claim takes it is UNDECIDED. A claim whose runs are missing is
  NOT RUN.
- Controls with a setting to choose are tuned on seed {", ".join(map(str, TUNING_SEEDS))}, which is never judged.
"""


def write(folder: Path, page: Path) -> list[Path]:
    """The page and its figures, from the summaries in a folder; what was written."""
    book = results.load(folder)
    drawn = results.draw(book, list(book), folder)
    for figure in drawn:
        figure.pdf.unlink(missing_ok=True)  # the page shows the other
    causes = folder / "causes.md"
    text = render(book, causes.read_text() if causes.is_file() else "", folder.name)
    page.write_text(text)
    return [page, *(figure.png for figure in drawn)]


def render(book: Summaries, causes: str, folder: str) -> str:
    """The page as Markdown."""
    rows = results.verdicts(book)
    sections = [HEAD, _scope(book), _verdicts(rows), _causes(causes), RULES]
    sections += [_panel(panel.load(name), book[name], folder) for name in panel.names() if name in book]
    missing = [name for name in panel.names() if name not in book]
    if missing:
        sections.append(_missing(missing))
    return "\n".join(section.strip() + "\n" for section in sections if section.strip())


def _scope(book: Summaries) -> str:
    used = list(book.values())
    if not used:
        return "No panel has been run yet."
    lines = [f"- {DATA[name]}" for name in DATA if any(s.dataset == name for s in used)]
    machines = sorted({s.machine for s in used if s.machine})
    hours = sum(s.seconds for s in used)
    lines.append(
        f"- Machine: {'; '.join(machines)}. {duration(hours)} of computing on one core for all panels together."
    )
    lines.append("- The same computation: `dragfl paper`, which takes what is there and runs what is missing.")
    table = ["| panel | what | data | rounds at most | seeds | computing, one core |", "|---|---|---|---|---|---|"]
    for name in panel.names():
        if name in book:
            one, s = panel.load(name), book[name]
            rounds = str(s.rounds) if s.rounds == one.rounds else f"{s.rounds}, the panel has {one.rounds}"
            table.append(
                f"| [{name}](#{_anchor(_title(one))}) | {one.figure} | {s.dataset} | {rounds} | {len(s.seeds)} "
                f"| {duration(s.seconds)} |"
            )
    return "\n".join(["## What was run", "", *lines, "", *table])


def _verdicts(rows: Sequence[Row]) -> str:
    table = ["| claim | the paper says, or it leaves open | measured: median (range over seeds) | verdict | because |"]
    table.append("|---|---|---|---|---|")
    table += [
        f"| {r.claim} | {_cell(r.says)} | {_cell(r.measured)} | **{r.verdict}** | {_cell(r.because)} |" for r in rows
    ]
    lead = (
        f"{results.tally(rows)}. C1 to C10 and C17 to C24 are the paper's own claims; the others ask what it leaves open. "
        "C32 to C34 are about its theory and are not judged by runs."
    )
    return "\n".join(["## Verdicts", "", lead, "", *table])


def _causes(causes: str) -> str:
    return f"## Where the paper and the measurement differ\n\n{causes.strip()}" if causes.strip() else ""


def _panel(one: Panel, s: Summary, folder: str) -> str:
    shown = [curve for curve in one.curve if s.curves.get(curve.id)]
    seeds = len(s.seeds)
    served = served_by(one.name)
    parts = [
        f"## {_title(one)}",
        "",
        f"{one.figure}. The paper: {one.paper}" if one.name.startswith("fig") else one.paper,
    ]
    if served:
        parts += ["", f"Claims: {', '.join(served)}."]
    parts += ["", f"![{one.title}: test accuracy by round]({folder}/{results.FIGURES}/{one.name}.png)", ""]
    parts += [figures.caption(one, s), "", *_curves(shown, s), "", *_tuning(one, s)]
    parts += [
        f"<!-- test: skip, it takes {duration(s.seconds / 2)} -->",
        "```console",
        _command(one, s, seeds),
        "```",
        "",
    ]
    parts += [*_settings(one, s)]
    return "\n".join(parts)


def _curves(shown: Sequence[Curve], s: Summary) -> list[str]:
    """A row for every curve: rounds to the target, final and best accuracy, median and range over seeds."""
    target = f"rounds to {100 * s.target:g} %" if s.target is not None else None
    heads = ["algorithm", *([target] if target else []), "final accuracy", "best accuracy", "step length / mean update"]
    lines = [f"| {' | '.join(heads)} |", "|" + "---|" * len(heads)]
    for curve in shown:
        records = list(s.curves[curve.id].values())
        cells = [f"{curve.label}, {curve.facet}" if curve.facet else curve.label]
        if s.target is not None:
            cells.append(_rounds(records, s.target))
        cells.append(_percent([r.final for r in records]) + _lost(records))
        cells.append(_percent([r.best for r in records]))
        ratios = [r.numbers["step_ratio"] for r in records if "step_ratio" in r.numbers]
        cells.append(f"{middle([Span.of(x) for x in ratios]).low:.2f}" if ratios else "—")
        lines.append(f"| {' | '.join(cells)} |")
    return lines


def _rounds(records: Sequence[Record], target: float) -> str:
    spans = [Span.more_than(r.limit) if (first := r.rounds_to(target)) is None else Span.of(first) for r in records]
    central = middle(spans)
    told = f"> {central.low:.0f}" if central.censored else f"{central.low:g}"
    low, high = min(s.low for s in spans), max(s.high for s in spans)
    if low == high or all(s.censored for s in spans):
        return told
    return f"{told} ({low:g} to {'not reached' if high == float('inf') else f'{high:g}'})"


def _percent(values: Sequence[float]) -> str:
    central = middle([Span.of(value) for value in values]).low
    low, high = min(values), max(values)
    spread = f" ({100 * low:.1f} to {100 * high:.1f})" if len(values) > 1 else ""
    return f"{100 * central:.1f} %{spread}"


def _lost(records: Sequence[Record]) -> str:
    lost = sum(r.ended == "diverged" for r in records)
    return f", {lost} of {len(records)} diverged" if lost else ""


def _tuning(one: Panel, s: Summary) -> list[str]:
    """What was tried, and what was taken."""
    lines = []
    for curve, chosen in s.tuned.items():
        tune = one[curve].tune
        trials = [t for t in s.tuning if t["curve"] == curve]
        if tune is None or not trials:
            continue
        tried = "; ".join(
            f"{t['value']}: {t['rounds'] if t['rounds'] is not None else f'> {s.rounds}'} rounds, best {100 * t['best']:.1f} %"
            for t in trials
        )
        seeds = ", ".join(map(str, sorted({t["seed"] for t in trials})))
        lines += [f"{one[curve].label}: `{tune.key}` = {chosen}, chosen on seed {seeds} ({tried}).", ""]
    return lines


def _command(one: Panel, s: Summary, seeds: int) -> str:
    words = ["dragfl", "paper", one.name, "--seeds", str(seeds)]
    for change in s.changes:
        key, _, value = change.partition("=")
        if key == "rounds":
            words += ["--rounds", value]
        elif key != "data.dataset":
            words.append(change)
    return " ".join([*words, *([f"data.dataset={s.dataset}"] if len(one.datasets) > 1 else [])])


def _settings(one: Panel, s: Summary) -> list[str]:
    lines = []
    if one.like is None:
        tables = {**one.experiment, "data": {"dataset": s.dataset, **one.experiment["data"]}}
        lines += ["What all curves share:", "", "```toml", tomli_w.dumps(tables).strip(), "```", ""]
    else:
        changed = f", with {', '.join(f'`{word}`' for word in one.set)}" if one.set else ""
        lines += [f"The experiment of {one.like}{changed}.", ""]
    own = {curve.label + (f", {curve.facet}" if curve.facet else ""): curve.set for curve in one.curve}
    lines += ["| curve | settings |", "|---|---|"]
    lines += [f"| {label} | {' '.join(f'`{word}`' for word in words)} |" for label, words in own.items()]
    lines += ["", "On these the paper is silent, or its code differs from its text:", ""]
    lines += [f"- `{key}`: {text}" for key, text in one.assumed.items()]
    return lines


def _missing(names: Sequence[str]) -> str:
    lines = ["## Not run yet", "", "Each is a command away; `dragfl paper --list` says how long it takes.", ""]
    lines += [f"- `dragfl paper {name}`: {panel.load(name).title}" for name in names]
    return "\n".join(lines)


def _title(one: Panel) -> str:
    return f"{one.name}: {one.title}"


def _anchor(heading: str) -> str:
    """The anchor of a heading, as GitHub makes it."""
    kept = "".join(c for c in heading.lower() if c.isalnum() or c in "-_ ")
    return kept.strip().replace(" ", "-")


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")


def verdict_counts(rows: Sequence[Row]) -> dict[str, int]:
    return {v.value: sum(r.verdict == v for r in rows) for v in Verdict}
