"""Which dataset a panel is run on: the first of its list that is at hand or can be fetched."""

from __future__ import annotations

from dataclasses import dataclass

from dragfl import data
from dragfl.data.obtain import whereabouts
from dragfl.errors import DataError
from dragfl.paper.panel import Panel


@dataclass(frozen=True)
class Found:
    """The dataset to use, or why there is none."""

    dataset: str | None
    reason: str = ""


def find(panel: Panel, *, quick: bool = False, asked: str | None = None) -> Found:
    """The dataset of a panel. With `quick` one that stands in for it will do; it is named wherever results are told."""
    stand_ins = [name for name in panel.quick.datasets if name not in panel.datasets] if quick else []
    wanted = [asked] if asked is not None else [*panel.datasets, *stand_ins]
    here = next((name for name in wanted if not whereabouts(name).startswith("not here")), None)
    if here is not None:
        return Found(here)
    tried = []
    for name in reversed(wanted) if stand_ins else wanted:  # what stands in is small, and its registries are near
        try:
            data.load(name)
        except DataError as error:
            tried.append(f"{name}: {str(error).splitlines()[0]}")
        else:
            return Found(name)
    return Found(None, "; ".join(tried))
