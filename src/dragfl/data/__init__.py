"""Datasets by name, their partition over clients, and the trusted root data."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dragfl.data.download import Progress
from dragfl.errors import SpecError, nearest

if TYPE_CHECKING:
    from dragfl.data.dataset import Dataset


DATASETS = {  # name -> description
    "digits": "1,438 + 359 grey 8x8 digits, 10 classes; comes with dragfl",
    "emnist": "EMNIST balanced: 112,800 + 18,800 grey 28x28 letters and digits, 47 classes",
    "emnist47": "93,629 + 4,700 EMNIST images of the same 47 classes, unequal in training; not the official split",
    "cifar10": "CIFAR-10: 50,000 + 10,000 colour 32x32 photographs, 10 classes",
    "mnist": "MNIST: 60,000 + 10,000 grey 28x28 digits, 10 classes",
    "fashion_mnist": "Fashion-MNIST: 60,000 + 10,000 grey 28x28 articles of clothing, 10 classes",
}
FILE_KINDS = ("npz", "idx")  # `npz:PATH` and `idx:FOLDER`: files of the user


def load(name: str | Dataset, progress: Progress | None = None) -> Dataset:
    """Load a dataset by name or from files (`npz:PATH`, `idx:FOLDER`); a Dataset is returned as it is.

    Searches the folders of DRAGFL_DATA and the cache, then downloads; calls `progress(what, done, total)` meanwhile.
    """
    if not isinstance(name, str):
        return name
    from dragfl.data.sources import cifar10, digits, idx, user_files

    kind, colon, where = name.partition(":")
    if colon and kind in FILE_KINDS:
        return user_files.load_npz(where) if kind == "npz" else user_files.load_idx(where)
    if name not in DATASETS:
        raise SpecError(f"unknown dataset '{name}'{nearest(name, [*DATASETS, 'npz:PATH', 'idx:FOLDER'])}")
    if name == "digits":
        return digits.load()
    return cifar10.load(progress) if name == "cifar10" else idx.load(name, progress)
