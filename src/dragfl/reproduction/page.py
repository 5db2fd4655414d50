"""docs/reproduction.md from the summaries beside it: verdicts, figures, tables and settings, and nothing by hand.

What only a person can say, the causes that the ablations point to, is read from `causes.md` in the folder of summaries.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from dragfl.reproduction import claims, results
from dragfl.reproduction import figure as panel
from dragfl.reproduction.claims import Part
from dragfl.reproduction.cost import duration
from dragfl.reproduction.figure import TUNING_SEEDS
from dragfl.reproduction.formatting import Row, finding_text
from dragfl.reproduction.page_figure import anchor, section, title
from dragfl.reproduction.summary import WINDOW
from dragfl.reproduction.verdicts import SHARE, Summaries, Verdict, find, target_of

HEAD = """# The paper again

Every figure of Zhu, Zhang, Liu, Wang, *DRAG: Divergence-based Adaptive Aggregation in Federated Learning on Non-IID
Data* (arXiv 2309.01779), run again with `dragfl paper`, and a verdict on every claim. The paper gives no tables and no
repetitions; its figures and words are what there is to compare with. This page is made of the runs' summaries in
[reproduction/](reproduction) by `python docs/make_reproduction.py`; nothing in it is typed in but the causes.
"""
DATA = {
    "emnist47": "`emnist47` is 93,629 + 4,700 real EMNIST images of the 47 balanced classes. It is not the official "
    "balanced split (112,800 + 18,800) that the paper names: accuracies are not comparable digit by digit.",
    "emnist": "`emnist` is the official balanced split: 112,800 + 18,800 images of 47 classes.",
    "cifar10": "`cifar10` is CIFAR-10 as published, 50,000 + 10,000 photographs, without augmentation.",
}
RULES = f"""## How a verdict is made

A claim is data ([claims.toml](../src/dragfl/paper/claims.toml)): curves, a metric, a relation, a threshold, and the
seeds it takes; the judge is code ([judge.py](../src/dragfl/paper/judge.py)) and reads nothing but the summaries.

- *Rounds to target* is the first evaluated round of at least the target accuracy, every 10 rounds. It is censored at
  the rounds given to the run: "not reached" means more than that. A ratio with a censored denominator is "at most"; a
  censored numerator fails; both censored is UNDECIDED.
- *Final accuracy* is the mean over the evaluations of the last {WINDOW} rounds (of the last half of a shorter run),
  *unrest* their standard deviation. A run that diverged has final accuracy 0 and reaches nothing.
- PASS needs the relation for the median over seeds and for at least {100 * SHARE:.0f} % of the seeds, compared seed by
  seed (the same split and the same first model), each with its best rival: the median of the ratios need not be the
  ratio of the medians. With fewer seeds than the claim takes it is UNDECIDED. A claim whose
  runs are missing is NOT RUN. All parts of a claim must hold.
- *Aggregate / mean update* is the median length of what the aggregate makes of the updates over that of their mean,
  before any server step, momentum or tuned length.
- Controls with a setting to choose are tuned on seed {", ".join(map(str, TUNING_SEEDS))}, which is never judged.
"""
METRICS = {  # in words, where causes are told
    "rounds": "rounds to the target",
    "final": "final accuracy",
    "best": "best accuracy",
    "mean": "mean accuracy over the run",
    "skipped": "rounds without a step",
    "reference_norm": "length of the root update",
}


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
    sections = [HEAD, _scope(book), _verdicts(rows), _causes(book, causes), RULES]
    sections += [section(panel.load(name), book[name], folder) for name in panel.names() if name in book]
    missing = [name for name in panel.names() if name not in book]
    if missing:
        sections.append(_missing(missing))
    return "\n".join(part.strip() + "\n" for part in sections if part.strip())


def _scope(book: Summaries) -> str:
    used = list(book.values())
    if not used:
        return "No panel has been run yet."
    lines = [f"- {DATA[name]}" for name in DATA if any(s.dataset == name for s in used)]
    machines = sorted({s.machine for s in used if s.machine})
    hours = duration(results.seconds(used))
    lines.append(f"- Machine: {'; '.join(machines)}. {hours} of computing on one core for all panels together.")
    lines.append("- The same computation: `dragfl paper`, which takes what is there and runs what is missing.")
    table = ["| panel | what | data | rounds at most | seeds | computing, one core |", "|---|---|---|---|---|---|"]
    for name in panel.names():
        if name in book:
            one, s = panel.load(name), book[name]
            rounds = str(s.rounds) if s.rounds == one.rounds else f"{s.rounds}, the panel has {one.rounds}"
            table.append(
                f"| [{name}](#{anchor(title(one))}) | {one.figure} | {s.dataset} | {rounds} | {len(s.seeds)} "
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
        f"{results.tally(rows)}. C1 to C10 and C17 to C24 are the paper's own claims; the others ask what it leaves "
        "open. C32 to C34 are about its theory and are not judged by runs."
    )
    return "\n".join(["## Verdicts", "", lead, "", *table])


def _causes(book: Summaries, by_hand: str) -> str:
    """Every cause that has runs to show for it, with their numbers; then what was written by hand."""
    lines = ["## Where the paper and the measurement differ, and why", ""]
    for cause in claims.causes():
        shown = [part for part in cause.part if find(part, 1, book).verdict is not Verdict.NOT_RUN]
        if shown:
            lines += [f"**{cause.title}.** {cause.text}", ""]
            lines += [f"- {_where(part, book)}: {finding_text(find(part, 1, book), book)}" for part in shown]
            lines.append("")
    return "\n".join([*lines, by_hand.strip()]) if len(lines) > 2 or by_hand.strip() else ""


def _where(part: Part, book: Summaries) -> str:
    target = target_of(part, book[part.panel])
    told = METRICS[part.metric] if part.metric != "rounds" or target is None else f"rounds to {100 * target:g} %"
    return f"{part.panel}, {told}"


def _missing(names: Sequence[str]) -> str:
    lines = ["## Not run yet", "", "Each is a command away; `dragfl paper --list` says how long it takes.", ""]
    lines += [f"- `dragfl paper {name}`: {panel.load(name).title}" for name in names]
    return "\n".join(lines)


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")
