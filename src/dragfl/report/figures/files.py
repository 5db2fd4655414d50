"""Figures on disk: each as PNG (200 dpi) and PDF, written whole or not at all."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from dragfl.errors import SpecError

if TYPE_CHECKING:
    from matplotlib.figure import Figure

DPI = 200


@dataclass(frozen=True)
class Drawing:
    """A matplotlib figure with its texts."""

    name: str  # of the files
    figure: Figure
    title: str
    caption: str


@dataclass(frozen=True)
class SavedFigure:
    """The files of a figure with its texts."""

    name: str
    png: Path
    pdf: Path
    title: str
    caption: str


def require_packages(*modules: str) -> None:
    """Raise an error that names the extra to install if one of these modules is missing."""
    missing = [name for name in modules if find_spec(name) is None]
    if missing:
        raise SpecError(
            f"report: figures need {' and '.join(missing)}, not installed: pip install 'dragfl[report]' "
            "(the tables of `dragfl.report.summarize_runs` do not need it)"
        )


def save_figure(drawing: Drawing, out: Path) -> SavedFigure:
    """Write PNG and PDF without dates in them, so that the same runs produce the same bytes."""
    png, pdf = out / f"{drawing.name}.png", out / f"{drawing.name}.pdf"
    with replace_file(png) as temporary:
        drawing.figure.savefig(temporary, dpi=DPI, metadata={"Software": None})
    with replace_file(pdf) as temporary:
        drawing.figure.savefig(temporary, metadata={"CreationDate": None, "Producer": None, "Creator": None})
    return SavedFigure(drawing.name, png, pdf, drawing.title, drawing.caption)


@contextmanager
def replace_file(path: Path) -> Iterator[Path]:
    """A temporary path to write to; it replaces `path` at the end and is removed if writing fails."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{os.getpid()}-{path.name}")  # same ending: matplotlib reads the format from it
    try:
        yield temporary
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
