"""The accuracy matrix of an arena as a table, and its key numbers."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from textwrap import wrap
from typing import TYPE_CHECKING

from dragfl.report.arena.results import WITHOUT_ATTACK, ArenaResults, Entry, Matrix
from dragfl.report.groups import shared_value
from dragfl.report.labels import NO_ATTACK, format_value, short_name
from dragfl.report.numbers import format_diverged

if TYPE_CHECKING:
    from rich.table import Table

TRUSTED = "†"
OFTEN = 0.01  # the default f is exceeded more often only if the rule admits no larger one
MARKS = {
    TRUSTED: "uses trusted data",
    "diverged": "counts as chance level (1 / classes)",
    "×": "at least one seed diverged and counts as chance level (1 / classes)",
    "‡": f"in more than {100 * OFTEN:g} % of rounds a cohort has more attackers than f of the defence",
    "n/a": "cannot be run, for the reason on the page",
    "?": "not known, because an attack has no result",
    "failed": "the run raised an error, which is on the page",
    "§": "at least one seed failed and is left out",
    "…": "not finished",
}


def attack_label(attack: str) -> str:
    return NO_ATTACK if attack == WITHOUT_ATTACK else short_name(attack)


def defence_label(matrix: Matrix, defence: str) -> str:
    """The name of a defence, with a mark if it uses trusted data."""
    return short_name(defence) + (f" {TRUSTED}" if defence in matrix.trusted else "")


def wrap_label(label: str) -> str:
    """A label in several short lines, for a narrow column; lines end at spaces and underscores."""
    return "\n".join(wrap(label.replace("_", "_ "), 8, break_long_words=False)).replace("_ ", "_")


def arena_title(results: ArenaResults) -> str:
    dataset = shared_value(results.runs, "data.dataset")
    return "Arena" if dataset is None else f"Arena on {format_value(dataset)}"


def arena_facts(results: ArenaResults) -> list[tuple[str, str]]:
    """What was run, as (name, value) pairs."""
    defences = results.matrices[0].defences
    facts = [("defences", str(len(defences))), ("attacks", str(len(results.matrices[0].attacks)))]
    facts.append(("runs", str(len(results.runs))))
    facts += [("not finished", str(results.unfinished))] if results.unfinished else []
    shared = {"rounds": "rounds", "clients": "clients.total"}
    facts += [(n, format_value(v)) for n, key in shared.items() if (v := shared_value(results.runs, key)) is not None]
    return [*facts, ("seeds", str(len(results.seeds)))]


def arena_headlines(results: ArenaResults) -> list[tuple[str, str]]:
    """The best worst-case accuracy, with and without trusted data, and what the clients add, as (name, value) pairs."""
    defences, trusted = results.matrices[0].defences, results.matrices[0].trusted
    found = []
    for name, among in (
        ("best worst case", defences),
        ("without trusted data", [d for d in defences if d not in trusted]),
    ):
        if (best := _best_worst_case(results, among)) and (name != "without trusted data" or trusted & set(defences)):
            found.append((name, best))
    added = [(text, m) for m in results.matrices if (text := describe_clients_add(m))]
    return found + [("what the clients add", text + _where(results, m)) for text, m in added]


def _where(results: ArenaResults, matrix: Matrix) -> str:
    """The matrix, if there are several."""
    return f", {matrix.heading}" if len(results.matrices) > 1 else ""


def describe_clients_add(matrix: Matrix) -> str:
    """The worst case of the best rule with root data minus that of the root data alone; "" if one is missing."""
    added = matrix.clients_add()
    if added is None:
        return ""
    points = f"{100 * abs(added.difference):.1f} points"
    nothing = added.difference <= 0.0 or points.startswith("0.0")
    cases = f"worst case {100 * added.worst_case:.1f} % with {short_name(added.defence)}"
    cases += f", {100 * added.root_only:.1f} % with the root data alone"
    return f"nothing: {cases}" if nothing else f"{points}: {cases}"


def _best_worst_case(results: ArenaResults, defences: Sequence[str]) -> str:
    """The highest worst-case accuracy over all attacks, partitions and numbers of attackers; "" if none is known."""
    cases = []
    for defence in defences:
        worst = [(*case, defence, matrix) for matrix in results.matrices if (case := matrix.worst_case(defence))]
        if len(worst) == len(results.matrices):
            cases.append(min(worst, key=lambda case: case[0]))
    if not cases:
        return ""
    value, attack, defence, matrix = max(cases, key=lambda case: case[0])
    entry = matrix.entries[defence, attack]
    accuracy = format_diverged(entry.diverged_at) if entry.all_diverged else f"{100 * value:.1f} %"
    return f"{accuracy} ({defence_label(matrix, defence)}, {attack_label(attack)}{_where(results, matrix)})"


def summarize_arena(results: ArenaResults) -> str:
    """The key numbers in one line."""
    return "; ".join(f"{name}: {value}" for name, value in arena_facts(results) + arena_headlines(results))


def missing_cells(results: ArenaResults) -> list[tuple[str, str, str]]:
    """(defence, attacks, reason) of the cells without a run or whose run failed; attacks with one reason together."""
    found: dict[tuple[str, str], list[str]] = {}
    for defence, attack, entry in results.entries:
        for reason in dict.fromkeys([entry.reason, *entry.failed.values()]):
            if reason:
                found.setdefault((defence, reason), []).append(attack_label(attack))
    return [(short_name(d), ", ".join(dict.fromkeys(attacks)), reason) for (d, reason), attacks in found.items()]


def format_entry(entry: Entry, *, std: bool = True) -> str:
    """`87.3`, `87.3 ± 0.4`, `diverged at round 12`, `49.8 ×` if only some seeds diverged, `n/a`, `…` if unfinished."""
    if entry.reason:
        return "n/a"
    if entry.accuracy is None:
        return "failed" if entry.failed else "…"
    marks = (" §" if entry.failed else "") + (" ‡" if entry.exceeds_f > OFTEN else "")
    if entry.all_diverged:
        return format_diverged(entry.diverged_at) + marks
    marks = (" ×" if entry.diverged_at else "") + marks
    return (entry.accuracy.format_percent() if std else f"{100 * entry.accuracy.mean:.1f}") + marks


def wrap_entry(text: str) -> str:
    """The text of a cell in two lines if a run diverged, for a narrow column."""
    return text.replace(" at round ", " at\nround ")


def format_matrix(matrix: Matrix, *, std: bool = True) -> tuple[list[str], list[list[str]]]:
    """(column names, lines of cells) of the final accuracy in percent; the last column is the worst case."""
    columns = ["defence", *map(attack_label, (WITHOUT_ATTACK, *matrix.attacks)), "worst"]
    lines = []
    for defence in matrix.defences:
        worst = matrix.worst_case(defence)
        cells = [format_entry(matrix.entries[defence, attack], std=std) for attack in (WITHOUT_ATTACK, *matrix.attacks)]
        last = "?" if worst is None else format_entry(matrix.entries[defence, worst[1]], std=std)
        lines.append([defence_label(matrix, defence), *cells, last])
    return columns, lines


def format_detection(matrix: Matrix) -> tuple[list[str], list[list[str]]]:
    """(column names, lines of cells) of the detection of attackers: true and false positive rate in %, AUC."""
    return ["defence", *map(attack_label, matrix.attacks)], [
        [defence_label(matrix, d), *(_format_rates(matrix.entries[d, attack]) for attack in matrix.attacks)]
        for d in matrix.defences
    ]


def _format_rates(entry: Entry) -> str:
    """`98 / 1`, in the next line `0.99`; n/a for a rule without scores."""
    if entry.accuracy is None:
        return format_entry(entry)
    if entry.flagged_by is None:
        return "n/a"
    rates = ["n/a" if r is None else f"{100 * r:.0f}" for r in (entry.true_positive_rate, entry.false_positive_rate)]
    return " / ".join(rates) + "\n" + ("n/a" if entry.auc is None else f"{entry.auc:.2f}")


def format_strengths(matrix: Matrix) -> tuple[list[str], list[list[str]]] | None:
    """(column names, lines of cells) of the settings that tuning selected; None if no attack was tuned."""
    if not any(entry.strength for entry in matrix.entries.values()):
        return None
    lines = []
    for defence in matrix.defences:
        found = [matrix.entries[defence, attack].strength for attack in matrix.attacks]
        texts = ["as it is" if s is None else f"{s['setting']} = {s['selected'] or 'default'}" for s in found]
        lines.append([defence_label(matrix, defence), *texts])
    return ["defence", *map(attack_label, matrix.attacks)], lines


def rich_tables(matrix: Matrix, width: int = 100) -> list[Table]:
    """The accuracy matrix for a terminal, split into several tables if it is too wide; means only."""
    columns, lines = format_matrix(matrix, std=False)
    lines = [[wrap_entry(text) for text in line] for line in lines]
    names = [wrap_label(name) for name in columns]
    widths = [max(map(len, "\n".join(texts).split("\n"))) for texts in zip(names, *lines, strict=True)]
    last = len(columns) - 1
    available = width - widths[0] - 1 - widths[last]
    blocks: list[list[int]] = [[]]
    for j in range(1, last):
        if blocks[-1] and sum(widths[i] + 1 for i in [*blocks[-1], j]) > available:
            blocks.append([])
        blocks[-1].append(j)
    tables = [_rich_table(columns, lines, (0, *block, last)) for block in blocks]
    marks = explain_marks(text for line in lines for text in line)
    tables[0].title, tables[0].title_justify = f"Final accuracy, %: {matrix.heading}", "left"
    tables[-1].caption, tables[-1].caption_justify = f"Sorted by the worst case. {marks}".strip(), "left"
    return tables


def _rich_table(columns: Sequence[str], lines: Sequence[Sequence[str]], shown: Sequence[int]) -> Table:
    from rich.markup import escape
    from rich.table import Table

    table = Table(box=None, pad_edge=False, collapse_padding=True, header_style="bold")
    for j in shown:
        style = "bold" if columns[j] == "worst" else ""
        table.add_column(wrap_label(columns[j]), justify="right" if j else "left", style=style, no_wrap=True)
    for line in lines:
        table.add_row(*(escape(line[j]) for j in shown), style="dim" if line[-1] == "?" else "")
    return table


def explain_marks(texts: Iterable[str]) -> str:
    """The meaning of the marks that occur in these cells and labels."""
    words = {word for text in texts for word in text.split()}
    return " ".join(f"{mark}: {meaning}." for mark, meaning in MARKS.items() if mark in words)
