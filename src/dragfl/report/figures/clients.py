"""Client telemetry: divergence or suspicion of every client in every round, and cosines with the reference."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.colors import ListedColormap
from matplotlib.image import AxesImage

from dragfl.report.figures.files import Drawing
from dragfl.report.figures.style import ATTACKER, DOTTED, GREY, HONEST, INK, add_colour_bar, new_figure, set_round_axis
from dragfl.report.groups import Group, seed_of
from dragfl.report.series import ClientTable, client_table, values_by_role

KEYS = {"divergence": "divergence λ", "suspicion": "suspicion"}  # telemetry -> unit; the first that a run has is drawn
MAX_ROWS, MAX_COLUMNS = 120, 240
# Low values are light, high values dark; cells without a value are transparent.
COLOURS = colormaps["viridis_r"].with_extremes(bad=(1, 1, 1, 0))


def draw_clients(groups: Sequence[Group]) -> Drawing | None:
    """Heat maps of clients by rounds, one for each group with client telemetry; the first finished seed is shown."""
    algorithms = [group.algorithm for group in groups]
    shown: list[tuple[str, ClientTable]] = []
    for group in sorted(groups, key=lambda group: algorithms.index(group.algorithm)):
        run = next((run for run in group.runs if run.finished), group.runs[0])
        table = client_table(run, list(KEYS))
        if table is not None:
            shown.append((group.label + (f" (seed {seed_of(run)})" if len(group.runs) > 1 else ""), table))
    if not shown:
        return None
    shown.sort(key=lambda item: list(KEYS).index(item[1].key))
    heights = [0.55 + min(2.4, max(1.1, 0.045 * min(len(table.clients), MAX_ROWS))) for _, table in shown]
    figure = new_figure(0.3 + sum(heights))
    axes = figure.subplots(len(shown), 1, squeeze=False, height_ratios=heights)[:, 0]
    top = {key: max([_max_value(table) for _, table in shown if table.key == key], default=1.0) for key in KEYS}
    for ax, (title, table) in zip(axes, shown, strict=True):
        image = _draw_client_table(ax, table, top[table.key])
        add_colour_bar(ax, image, KEYS[table.key])
        ax.set_title(title)
    set_round_axis(axes[-1])
    title = " or ".join(key for key in KEYS if any(table.key == key for _, table in shown)).capitalize()
    return Drawing("clients", figure, f"{title} of each client", _caption([table for _, table in shown]))


def _caption(tables: Sequence[ClientTable]) -> str:
    """What the colours mean, and the marks that occur in these tables."""
    keys = {table.key for table in tables}
    values = np.concatenate([np.ravel(table.value) for table in tables])
    rows, columns = (max(map(len, found)) for found in zip(*((t.clients, t.rounds) for t in tables), strict=True))
    sentences = {
        "Rows are clients, columns are rounds.": True,
        "Divergence λ = c (1 − cos); 0: the update is used as it is.": "divergence" in keys,
        "Suspicion: the score of the rule.": "suspicion" in keys,
        "Attackers are above the white line.": any(table.attackers for table in tables),
        "Blank: not sampled.": np.isnan(values).any(),
        "Grey: dropped, the update was not finite.": np.isinf(values).any(),
        "Vermillion: attacks of clients that attack in some rounds only.": any(
            table.attacks and len(table.clients) <= MAX_ROWS for table in tables
        ),
        f"{MAX_ROWS} clients are shown, evenly selected.": rows > MAX_ROWS,
        "Columns are means over neighbouring rounds.": columns > MAX_COLUMNS,
    }
    return " ".join(sentence for sentence, applies in sentences.items() if applies)


def _draw_client_table(ax: Axes, table: ClientTable, top: float) -> AxesImage:
    value, attackers = select_rows(np.array(table.value), table.attackers)
    dropped = average_columns(np.isinf(value).astype(float))
    value = average_columns(np.where(np.isfinite(value), value, np.nan))
    extent = (table.rounds[0] - 0.5, table.rounds[-1] + 0.5, len(value) - 0.5, -0.5)
    options = {"extent": extent, "aspect": "auto", "interpolation": "nearest"}
    grey = np.where((dropped > 0) & np.isnan(value), 1.0, np.nan)
    ax.imshow(grey, cmap=ListedColormap([GREY]), vmin=0, vmax=1, **options)  # type: ignore[arg-type]
    image = ax.imshow(value, cmap=COLOURS, vmin=0, vmax=top, **options)  # type: ignore[arg-type]
    ax.grid(False)
    set_round_axis(ax, "")
    ax.spines[["left", "bottom"]].set_visible(False)
    honest = "honest clients" if attackers else "clients"
    roles = [("attackers", (attackers - 1) / 2), (honest, (attackers + len(value) - 1) / 2)]
    roles = roles[not attackers : None if attackers < len(value) else 1]
    ax.set_yticks([y for _, y in roles], [name for name, _ in roles])
    ax.tick_params(axis="y", length=0, labelcolor=INK)
    if attackers and attackers < len(value):
        ax.axhline(attackers - 0.5, color="white", linewidth=1.6)
    if table.attacks and len(table.clients) <= MAX_ROWS:
        rows, columns = zip(*table.attacks, strict=True)
        ax.scatter([table.rounds[t] for t in columns], rows, s=4, marker="s", color=ATTACKER, linewidths=0)
    return image


def _max_value(table: ClientTable) -> float:
    value = np.array(table.value)
    value = value[np.isfinite(value)]
    return max(float(value.max()), 1e-6) if value.size else 1.0


def select_rows(value: np.ndarray, attackers: int) -> tuple[np.ndarray, int]:
    """At most MAX_ROWS clients, evenly selected among attackers and honest clients; (rows, attackers among them)."""
    if len(value) <= MAX_ROWS:
        return value, attackers
    few = min(attackers, max(MAX_ROWS // 4, round(MAX_ROWS * attackers / len(value))))
    honest = min(MAX_ROWS - few, len(value) - attackers)
    parts = np.linspace(0, attackers - 1, few), np.linspace(attackers, len(value) - 1, honest)
    return value[np.concatenate(parts).round().astype(int)], few


def average_columns(value: np.ndarray) -> np.ndarray:
    """At most MAX_COLUMNS columns, each the mean of the finite values of neighbouring rounds."""
    width = -(-value.shape[1] // MAX_COLUMNS)  # rounds in a column
    if width == 1:
        return value
    padded = np.pad(value, ((0, 0), (0, -value.shape[1] % width)), constant_values=np.nan)
    means: np.ndarray = np.ma.masked_invalid(padded.reshape(len(value), -1, width)).mean(2).filled(np.nan)
    return means


def draw_cosines(groups: Sequence[Group]) -> Drawing | None:
    """Histograms of the cosine with the reference: honest clients upwards, attackers downwards."""
    shown = [(group, *parts) for group in groups if any(parts := values_by_role(group.runs, "cosine"))]
    if not shown:
        return None
    figure = new_figure(0.75 + 0.95 * len(shown))
    axes = figure.subplots(len(shown), 1, sharex=True, squeeze=False)[:, 0]
    for ax, (group, honest, attackers) in zip(axes, shown, strict=True):
        _draw_histograms(ax, np.array(honest), np.array(attackers))
        ax.set_title(group.label)
        ax.tick_params(bottom=ax is axes[-1])
    axes[-1].set_xlabel("cosine between a client update and the reference")
    caption = (
        "Fraction of updates by their cosine with the reference direction, all rounds and seeds. Dotted: cosine 0."
    )
    caption += " Up: honest clients. Down: attackers." if any(bad for _, _, bad in shown) else ""
    return Drawing("cosine", figure, "Cosine with the reference", caption)


def _draw_histograms(ax: Axes, honest: np.ndarray, attackers: np.ndarray) -> None:
    edges = np.linspace(-1, 1, 61)
    for values, sign, colour, name, y in (
        (honest, 1, HONEST, "honest", 0.72),
        (attackers, -1, ATTACKER, "attackers", 0.22),
    ):
        if values.size:
            fraction = np.histogram(np.clip(values, -1, 1), edges)[0] / values.size
            ax.stairs(sign * fraction, edges, fill=True, color=colour, alpha=0.85)
            text = f"{name}, {values.size:,} updates" if attackers.size else f"{values.size:,} updates"
            ax.text(1.01, y, text, transform=ax.transAxes, color=colour, fontsize=7.5, va="center")
    ax.axhline(0, color=INK, linewidth=0.6)
    ax.axvline(0, color="#9A9A9A", linewidth=0.6, linestyle=DOTTED)
    ax.set_xlim(-1, 1)
    ax.set_yticks([])
    ax.spines[["left", "bottom"]].set_visible(False)
