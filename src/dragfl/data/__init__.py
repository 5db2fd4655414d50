"""Datasets by name, their partition over clients, and the trusted root data."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dragfl.data.download import Progress
from dragfl.data.sources import TABULAR
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
    "play": "a generated play: 20,553 + 5,044 windows of 20 characters, 54 classes, 20 speakers; comes with dragfl",
    "breast_cancer": "456 + 113 tumours, 30 features, 2 classes; needs scikit-learn",
    "wine": "142 + 36 wines, 13 features, 3 classes; needs scikit-learn",
    "iris": "120 + 30 flowers, 4 features, 3 classes; needs scikit-learn",
}
FILE_KINDS = {"npz": "npz:PATH", "idx": "idx:FOLDER", "text": "text:PATH"}  # files of the user


def load(name: str | Dataset, progress: Progress | None = None) -> Dataset:
    """Load a dataset: search the folders of DRAGFL_DATA and the cache, then download.

    Parameters
    ----------
    name
        A name of `DATASETS`, a file of your own (`npz:PATH`, `idx:FOLDER`, `text:PATH`), or a Dataset, which is
        returned as it is.
    progress
        Called with (what, done, total) during a download.
    """
    if not isinstance(name, str):
        return name
    from dragfl.data.sources import cifar10, digits, idx, play, tabular, text, user_files

    kind, colon, where = name.partition(":")
    if colon and kind in FILE_KINDS:
        return {"npz": user_files.load_npz, "idx": user_files.load_idx, "text": text.load}[kind](where)
    if name not in DATASETS:
        raise SpecError(f"data.dataset: unknown dataset '{name}'{nearest(name, [*DATASETS, *FILE_KINDS.values()])}")
    if name in TABULAR:
        return tabular.load(name)
    if name in ("digits", "play"):
        return digits.load() if name == "digits" else play.load()
    return cifar10.load(progress) if name == "cifar10" else idx.load(name, progress)
