"""Which dataset a panel is run on: the first of its list that is at hand or can be fetched."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from dragfl import data
from dragfl.data.locate import describe_location
from dragfl.errors import DataError, SpecError
from dragfl.reproduction.figure import Panel

Progress = Callable[[str, int, int], None]


@dataclass(frozen=True)
class Found:
    """The dataset to use, or why there is none."""

    dataset: str | None
    reason: str = ""


class Finder:
    """Finds the datasets of panels; what could not be fetched once is not tried again.

    With `quick` a dataset that stands in for the panel's will do; it is named wherever results are told. Without
    `fetch`, where none is at hand, it is the one that would be tried first.
    """

    def __init__(
        self, *, quick: bool = False, asked: object = None, fetch: bool = True, progress: Progress | None = None
    ) -> None:
        if asked is not None and not isinstance(asked, str):
            raise SpecError(f"data.dataset: {asked!r} is no name of a dataset; see `dragfl data list`")
        self._quick, self._asked, self._fetch, self._progress = quick, asked, fetch, progress
        self._failures: dict[str, str] = {}  # dataset -> why it cannot be had, or nothing if it was fetched

    def find(self, panel: Panel) -> Found:
        stand_ins = [name for name in panel.quick.datasets if name not in panel.datasets] if self._quick else []
        wanted = [self._asked] if self._asked is not None else [*panel.datasets, *stand_ins]
        here = next((name for name in wanted if not describe_location(name).startswith("not here")), None)
        if here is not None:
            return Found(here)
        order = wanted[::-1] if stand_ins else wanted  # what stands in is small, and its registries are near
        if not self._fetch:
            return Found(order[0])
        for name in order:
            if name not in self._failures:
                self._failures[name] = self._load(name)
            if not self._failures[name]:
                return Found(name)
        return Found(None, "; ".join(f"{name}: {self._failures[name]}" for name in order))

    def _load(self, name: str) -> str:
        try:
            data.load(name, self._progress)
        except DataError as error:
            return " ".join(str(error).split())
        return ""
