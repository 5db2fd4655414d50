"""Datasets by name, their split into clients, and the trusted root data."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from dragfl.errors import SpecError, nearest

if TYPE_CHECKING:
    from dragfl.data.dataset import Dataset
    from dragfl.data.fetch import Progress

SOURCES = {  # name -> module with `load(progress) -> Dataset`
    "digits": "dragfl.data.sources.digits",
    "emnist": "dragfl.data.sources.emnist",
    "emnist47": "dragfl.data.sources.emnist47",
    "cifar10": "dragfl.data.sources.cifar10",
    "mnist": "dragfl.data.sources.mnist",
    "fashion_mnist": "dragfl.data.sources.fashion_mnist",
}
FILES = ("npz", "idx")  # `npz:PATH` and `idx:FOLDER`: a user's own files


def load(name: str | Dataset, progress: Progress | None = None) -> Dataset:
    """The dataset of this name, of the files `npz:PATH` or `idx:FOLDER`, or the dataset given itself.

    Looked for in the folders of DRAGFL_DATA, in the cache, then fetched; `progress(what, done, total)` is
    told of it.
    """
    if not isinstance(name, str):
        return name
    kind, colon, where = name.partition(":")
    if colon and kind in FILES:
        from dragfl.data.sources import own

        return own.load_npz(where) if kind == "npz" else own.load_idx(where)
    if name not in SOURCES:
        raise SpecError(f"unknown dataset '{name}'{nearest(name, [*SOURCES, 'npz:PATH', 'idx:FOLDER'])}")
    dataset: Dataset = import_module(SOURCES[name]).load(progress)
    return dataset
