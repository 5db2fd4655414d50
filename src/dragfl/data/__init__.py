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
ABOUT = {
    "digits": "1,438 + 359 grey 8x8 digits, 10 classes; comes with dragfl",
    "emnist": "EMNIST balanced: 112,800 + 18,800 grey 28x28 letters and digits, 47 classes",
    "emnist47": "93,629 + 4,700 EMNIST images of the same 47 classes; not the official split",
    "cifar10": "CIFAR-10: 50,000 + 10,000 colour 32x32 photographs, 10 classes",
    "mnist": "MNIST: 60,000 + 10,000 grey 28x28 digits, 10 classes",
    "fashion_mnist": "Fashion-MNIST: 60,000 + 10,000 grey 28x28 articles of clothing, 10 classes",
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
