"""Figures on disk: each as PNG (200 dpi) or PDF, written whole or not at all."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dragfl.atomic import write_file
from dragfl.errors import SpecError

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FIGURES = "figures"  # the folder of the figures, next to the page that shows them
NO_DATES = {"png": {"Software": None}, "pdf": {"CreationDate": None, "Producer": None, "Creator": None}}
KINDS = tuple(NO_DATES)


@dataclass(frozen=True)
class Drawing:
    """A matplotlib figure with its texts."""

    name: str  # of the files
    figure: Figure
    title: str
    caption: str
    chart: Mapping[str, Any] | None = None  # of a line plot: its numbers, for the page

    def save(self, folder: Path, kinds: Sequence[str] = KINDS) -> None:
        """Write the figure as files of these kinds; the same runs produce the same bytes."""
        folder.mkdir(parents=True, exist_ok=True)
        for kind in kinds:
            save = partial(self.figure.savefig, format=kind, dpi=200, metadata=NO_DATES[kind])
            write_file(folder / f"{self.name}.{kind}", save)


def missing_packages(*modules: str) -> list[str]:
    return [name for name in modules if find_spec(name) is None]


def require_packages(*modules: str) -> None:
    """Raise an error that names the extra to install if one of these modules is missing."""
    if missing := missing_packages(*modules):
        raise SpecError(
            f"report: figures need {' and '.join(missing)}, not installed: pip install 'dragfl[report]' "
            "(the tables of `dragfl.report.summarize_runs` do not need it)"
        )
