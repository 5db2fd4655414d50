"""Figures of a dataset: the label distribution of the clients, and samples. Needs matplotlib (`dragfl[report]`)."""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dragfl.data.dataset import Dataset
from dragfl.data.partitions import ClientSplit, label_counts, summarize_split
from dragfl.errors import DataError, SpecError

if TYPE_CHECKING:
    from matplotlib.figure import Figure


MAX_CLIENTS = 100  # of a larger population, this many evenly spaced clients are plotted
INK, GREY, BLUE = "#222222", "#8a8a8a", "#0072B2"
STYLE: Any = {"font.size": 8, "text.color": INK, "axes.edgecolor": GREY, "axes.linewidth": 0.6}


def require_matplotlib() -> None:
    """Raise if matplotlib is not installed."""
    if find_spec("matplotlib") is None:
        raise SpecError("figures need matplotlib: pip install 'dragfl[report]', or use --no-figures")


def plot_label_distribution(dataset: Dataset, split: ClientSplit, title: str) -> Figure:
    """A heat map of the label distribution of each client, with the client sizes above; one colour scale for all."""
    require_matplotlib()
    import matplotlib as mpl
    from matplotlib.colors import LinearSegmentedColormap, PowerNorm
    from matplotlib.figure import Figure

    step = -(-split.clients // MAX_CLIENTS)
    shown = np.arange(0, split.clients, step)
    labels = dataset.y.cpu().numpy()
    counts = label_counts(split, labels, dataset.classes, shown.tolist())
    facts = summarize_split(split, labels, dataset.classes)
    with mpl.rc_context(STYLE):
        height = 1.5 + min(max(0.115 * dataset.classes, 1.6), 6.0)
        figure = Figure(figsize=(min(max(2.2 + 0.12 * len(shown), 4.6), 8.0), height), layout="constrained")
        sizes, cells = figure.subplots(2, 1, sharex=True, height_ratios=[1, max(4.0, dataset.classes / 7)])
        blues = ["#e8f1fa", "#9ecae1", "#4292c6", "#2171b5", "#08306b"]
        colours = LinearSegmentedColormap.from_list("blues", blues).with_extremes(bad="white")
        mix = np.ma.masked_equal(counts / counts.sum(1, keepdims=True), 0).T
        scale = PowerNorm(0.5, 0, 1)  # square root: a share of 2 % stays visible
        image = cells.imshow(mix, aspect="auto", cmap=colours, norm=scale, interpolation="nearest")
        sizes.bar(np.arange(len(shown)), counts.sum(1), width=0.8, color=GREY)
        sizes.set_ylabel("samples")
        sizes.spines[["top", "right"]].set_visible(False)
        _ticks(cells, shown, dataset)
        cells.set_xlabel("client" if step == 1 else f"client (every {step:,}th of {split.clients:,})")
        cells.set_ylabel("class")
        sizes.tick_params(axis="x", which="both", length=0, labelbottom=False)
        bar = figure.colorbar(image, ax=cells, pad=0.01, fraction=0.04, label="share of the client's samples")
        shares = (0, 0.01, 0.05, 0.1, 0.25, 0.5, 0.75, 1)
        bar.set_ticks(shares, labels=[f"{share:.0%}" for share in shares])
        subtitle = f"{facts.classes_median:g} classes per client (median), total variation {facts.total_variation:.2f}"
        sizes.set_title(f"{title}\n", loc="left", fontsize=9.5, fontweight="bold")
        sizes.text(0, 1.06, subtitle, transform=sizes.transAxes, color="#555555", fontsize=8)
    return figure


def _ticks(cells: Any, shown: NDArray[np.int64], dataset: Dataset) -> None:
    """Grid lines between cells, class names, and round client numbers."""
    cells.set_xticks(np.arange(len(shown) + 1) - 0.5, minor=True)
    cells.set_yticks(np.arange(dataset.classes + 1) - 0.5, minor=True)
    cells.grid(which="minor", color="#eeeeee", linewidth=0.4)
    cells.tick_params(which="minor", length=0)
    every = next(k for k in (1, 2, 5, 10, 20, 50, 100) if len(shown) / k <= 15)
    at = np.arange(0, len(shown), every)
    cells.set_xticks(at, [f"{shown[i]:,}" for i in at])
    rows = range(0, dataset.classes, -(-dataset.classes // 60))
    cells.set_yticks(rows, map(dataset.class_name, rows), fontsize=6 if dataset.classes > 25 else 8)


def plot_samples(dataset: Dataset, rng: np.random.Generator, columns: int = 12) -> Figure:
    """Random training samples, upright, one row per class."""
    require_matplotlib()
    import matplotlib as mpl
    import torch
    from matplotlib.figure import Figure

    if len(dataset.shape) != 3 or dataset.shape[0] not in (1, 3):
        raise DataError(f"dataset {dataset.name}: inputs of shape {dataset.shape} are not grey or RGB images")
    labels = dataset.y.cpu().numpy()
    names = [dataset.class_name(label) for label in range(dataset.classes)]
    blocks = -(-dataset.classes // 16)
    rows = -(-dataset.classes // blocks)
    height, width, channels = dataset.images(dataset.x[:1]).shape[1:]
    white = 0.0 if channels == 1 else 1.0  # grey images use an inverted colour map
    side = 0.25 + 0.07 * max(map(len, names))
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(0.1 + blocks * (side + 0.2 * columns), 0.4 + 0.2 * rows), layout="constrained")
        title = f"{dataset.name}: training samples by class"
        figure.suptitle(title, x=0.01, ha="left", fontsize=9.5, fontweight="bold")
        for block, axes in enumerate(np.atleast_1d(figure.subplots(1, blocks))):
            held = range(block * rows, min((block + 1) * rows, dataset.classes))
            # A margin of one pixel around every image.
            tiles = np.full((rows, columns, height + 2, width + 2, channels), white, np.float32)
            for row, label in enumerate(held):
                members = np.flatnonzero(labels == label)
                chosen = rng.choice(members, min(columns, len(members)), replace=False)
                images = dataset.images(dataset.x[torch.from_numpy(chosen)]).cpu().numpy()
                tiles[row, : len(chosen), 1:-1, 1:-1] = images.clip(0, 1)
            sheet = tiles.transpose(0, 2, 1, 3, 4).reshape(rows * (height + 2), columns * (width + 2), channels)
            axes.imshow(sheet.squeeze(), cmap="gray_r" if channels == 1 else None, vmin=0, vmax=1)
            axes.set_yticks((np.arange(len(held)) + 0.5) * (height + 2) - 0.5, [names[label] for label in held])
            axes.set_xticks([])
            axes.tick_params(length=0)
            axes.spines[:].set_visible(False)
    return figure
