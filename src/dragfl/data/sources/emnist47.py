"""emnist47: 93,629 + 4,700 real EMNIST images of the 47 balanced classes, derived from ByMerge and ByClass test files.

It is not the official balanced split (that is `emnist`): accuracies are not comparable with published ones.
G. Cohen, S. Afshar, J. Tapson, A. van Schaik, EMNIST: an extension of MNIST to handwritten letters, 2017.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dragfl.data.dataset import Dataset
from dragfl.data.locate import obtain, pin
from dragfl.data.sources.emnist import NAMES
from dragfl.data.sources.idx_files import File, Files, tensors

if TYPE_CHECKING:
    from dragfl.data.download import Progress

FILES = Files(
    File(
        "emnist47-train-images-idx3-ubyte",
        (93_629, 28, 28),
        packed="sha256:23c7401ee2e40bc58b5264fdefc9c4d3602f3537afd7d8fe47baa927001d950b",
    ),
    File(
        "emnist47-train-labels-idx1-ubyte",
        (93_629,),
        packed="sha256:c7457c6c5f4967e72dc46ff4c83967e793c4facf77a5b2bf90d857730f4dc7d2",
    ),
    File(
        "emnist47-test-images-idx3-ubyte",
        (4_700, 28, 28),
        packed="sha256:89cd9c4a5935a9bb30dd5445033b69c2c8750fbb729ea51bb294f54f5875cd1c",
    ),
    File(
        "emnist47-test-labels-idx1-ubyte",
        (4_700,),
        packed="sha256:dba954151db899e2e8dea1737d3909d2c5097481bd7fce0e0e1804c954856c23",
    ),
    places=("emnist47", "."),
)
BY_HAND = (
    "By hand: this set has no public address; put its four files (emnist47-train-images-idx3-ubyte.gz and the other "
    "three) in a folder named emnist47, and name the folder above it in DRAGFL_DATA. The official set is `emnist`."
)


def load(progress: Progress | None = None) -> Dataset:
    arrays = obtain("emnist47", pin(FILES), [FILES.local()], BY_HAND, progress)
    return Dataset("emnist47", *tensors(arrays), classes=47, class_names=NAMES, transposed=True)
