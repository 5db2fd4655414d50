"""The page's title and opening sentences, and the matrix as a table: all of it said of the runs there are."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from dragfl.report.arena.matrix import CLEAN, Entry, Matrix, Results
from dragfl.report.arena.names import TRUSTED, attack_name, defence_name, wrapped
from dragfl.report.labels import flatten, text

if TYPE_CHECKING:
    from rich.table import Table

BROKEN = 0.5  # a defence that loses this share of its accuracy without attackers is said to break


def title(results: Results) -> str:
    dataset = shared(results, "data.dataset")
    matrix = results.matrices[0]
    head = f"{_count(len(matrix.defences), 'defence')} against {_count(len(matrix.attacks), 'attack')}"
    return f"{head} on {text(dataset)}" if dataset is not None else head


def summary(results: Results) -> str:
    """What was played, who holds out and who breaks."""
    parts = [_what(results)]
    if len(results.matrices) == 1:
        parts.append(verdict(results.matrices[0]))
    else:
        parts.append(overall(results))
    if results.waiting:
        parts.append(f"{_count(results.waiting, 'run')} not finished.")
    return " ".join(part for part in parts if part)


def overall(results: Results) -> str:
    """The best worst case over all partitions and numbers of attackers."""
    found: list[tuple[float, str, Matrix]] = []
    for defence in results.defences:
        worst = [(v, defence, m) for m in results.matrices if (v := m.worst_value(defence)) is not None]
        if len(worst) == len(results.matrices):
            found.append(min(worst, key=lambda one: one[0]))
    if not found:
        return ""
    value, best, where = max(found, key=lambda one: one[0])
    mark = ", which is given trusted data," if best in where.trusted else ""
    hurt = attack_name(where.worst(best) or "")
    return (
        f"Over all {len(results.matrices)} settings the best worst case is {100 * value:.1f} %, of "
        f"{defence_name(best)}{mark} under {hurt} ({heading(where)})."
    )


def _what(results: Results) -> str:
    rounds, total = shared(results, "rounds"), shared(results, "clients.total")
    of = f" of {rounds} rounds" if rounds is not None else ""
    among = f" with {total} clients" if total is not None else ""
    seeds = f", {len(results.seeds)} seeds each" if len(results.seeds) > 1 else ", one seed"
    crowd = f"; {results.matrices[0].attackers}" if len(results.matrices) == 1 else ""
    return f"{_count(len(results.runs), 'run')}{of}{among}{seeds}{crowd}."


def verdict(matrix: Matrix) -> str:
    """Who has the best worst case, and how many are broken by some attack."""
    known = [(d, v) for d in matrix.defences if (v := matrix.worst_value(d)) is not None]
    if not known:
        return ""
    best, value = known[0]
    hurt = attack_name(matrix.worst(best) or "")
    mark = ", which is given trusted data," if best in matrix.trusted else ""
    told = f"The best worst case is {100 * value:.1f} %, of {defence_name(best)}{mark} under {hurt}."
    untrusting = next(((d, v) for d, v in known if d not in matrix.trusted), None)
    if best in matrix.trusted and untrusting is not None:
        told += f" Without trusted data it is {100 * untrusting[1]:.1f} %, of {defence_name(untrusting[0])}."
    broken = [d for d, v in known if v < BROKEN * (matrix.entries[d, CLEAN].value or 0.0)]
    told += f" {_some(len(broken), len(known))} more than half of the accuracy without attackers to some attack."
    return told


def _some(broken: int, known: int) -> str:
    if broken == 0:
        return "No defence loses"
    lose = "loses" if broken == 1 else "lose"
    return f"{broken} of {_count(known, 'defence')} {lose}"


def heading(matrix: Matrix) -> str:
    """`6 of 20 clients attack, sorted_shards`."""
    return f"{matrix.attackers}, {matrix.partition}"


def shared(results: Results, key: str) -> Any:
    """The value of a dotted setting that all runs have, or None."""
    values = [flatten(run.spec).get(key) for run in results.runs]
    return values[0] if values and all(value == values[0] for value in values) else None


def reasons(results: Results) -> list[tuple[str, str]]:
    """Why cells are n/a: (which, why), one line for all attacks that share a reason."""
    found: dict[tuple[str, str], list[str]] = {}
    for defence, attack, entry in results.entries:
        if entry.reason:
            found.setdefault((defence, entry.reason), []).append(attack)
    attacks = results.matrices[0].attacks
    return [(f"{defence_name(d)} against {_listed(names, attacks)}", reason) for (d, reason), names in found.items()]


def _listed(names: Sequence[str], every: Sequence[str]) -> str:
    return "every attack" if set(names) == set(every) else ", ".join(attack_name(name) for name in names)


def cell(entry: Entry) -> str:
    """`87.3`, `87.3 ± 0.4`, `9.8 ×` where it diverged, `n/a`, `…` where it has not finished."""
    if entry.reason:
        return "n/a"
    cross = " ×" if entry.diverged else ""
    if entry.accuracy is None:
        return cross.strip() or "…"
    spread = entry.accuracy.deviation
    return f"{100 * entry.accuracy.mean:.1f}" + (f" ± {100 * spread:.1f}" if spread is not None else "") + cross


def grid(matrix: Matrix) -> tuple[list[str], list[list[str]]]:
    """(headings, lines) of the accuracy in percent; the last two columns are the worst attack and its accuracy."""
    headings = ["defence", "no attack", *(attack_name(a) for a in matrix.attacks), "worst"]
    lines = []
    for d in matrix.defences:
        worst = matrix.worst(d)
        name = defence_name(d) + (f" {TRUSTED}" if d in matrix.trusted else "")
        cells = [cell(matrix.entries[d, a]) for a in (CLEAN, *matrix.attacks)]
        lines.append([name, *cells, "n/a" if worst is None else cell(matrix.entries[d, worst])])
    return headings, lines


def rich_tables(matrix: Matrix, width: int = 100) -> list[Table]:
    """The accuracy matrix for a terminal, in as many tables as it takes; deviations are left to the page."""
    headings, lines = grid(matrix)
    lines = [[_without_deviation(text) for text in line] for line in lines]
    sizes = [
        max(map(len, [*wrapped(name).split("\n"), *(line[j] for line in lines)])) for j, name in enumerate(headings)
    ]
    last = len(headings) - 1
    room = width - sizes[0] - 1 - sizes[last]
    blocks: list[list[int]] = [[]]
    for j in range(1, last):
        if blocks[-1] and sum(sizes[i] + 1 for i in [*blocks[-1], j]) > room:
            blocks.append([])
        blocks[-1].append(j)
    tables = [_block([headings[j] for j in (0, *block, last)], [[line[j] for j in (0, *block, last)] for line in lines])
              for block in blocks]  # fmt: skip
    tables[0].title, tables[0].title_justify = f"Final accuracy, %: {heading(matrix)}", "left"
    tables[-1].caption, tables[-1].caption_justify = _marks(matrix), "left"
    return tables


def _block(headings: Sequence[str], lines: Sequence[Sequence[str]]) -> Table:
    from rich.markup import escape
    from rich.table import Table

    out = Table(box=None, pad_edge=False, collapse_padding=True, header_style="bold")
    for name in headings:
        first = name == headings[0]
        out.add_column(wrapped(name), justify="left" if first else "right", style="bold" if name == "worst" else "",
                       no_wrap=True)  # fmt: skip
    for line in lines:
        out.add_row(*map(escape, line), style="dim" if line[-1] == "n/a" else "")
    return out


def _without_deviation(text: str) -> str:
    """`11.0 ± 1.4 ×` as `11.0 ×`."""
    mean, _, rest = text.partition(" ± ")
    return mean + (" ×" if rest.endswith("×") else "")


def _marks(matrix: Matrix) -> str:
    entries = matrix.entries.values()
    parts = ["Sorted by the worst case."]
    if matrix.trusted & set(matrix.defences):
        parts.append(f"{TRUSTED} is given trusted data.")
    if any(entry.diverged for entry in entries):
        parts.append("× diverged.")
    return " ".join(parts)


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
