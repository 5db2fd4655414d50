"""emnist47: 93,629 + 4,700 EMNIST images of the 47 balanced classes, derived from the ByMerge and ByClass test files.

It is not the official balanced split (that is `emnist`): accuracies are not comparable with published ones.
G. Cohen, S. Afshar, J. Tapson, A. van Schaik, EMNIST: an extension of MNIST to handwritten letters, 2017.
"""

from __future__ import annotations

from dragfl.data.dataset import Dataset, as_tensors
from dragfl.data.download import Progress
from dragfl.data.locate import cache_key, load_arrays
from dragfl.data.sources.emnist import NAMES
from dragfl.data.sources.idx_files import idx_files

FILES = idx_files(
    93_629,
    4_700,
    ("emnist47", "."),
    prefix="emnist47-",
    test_name="test",
    gz_checksums=(
        "sha256:23c7401ee2e40bc58b5264fdefc9c4d3602f3537afd7d8fe47baa927001d950b",
        "sha256:c7457c6c5f4967e72dc46ff4c83967e793c4facf77a5b2bf90d857730f4dc7d2",
        "sha256:89cd9c4a5935a9bb30dd5445033b69c2c8750fbb729ea51bb294f54f5875cd1c",
        "sha256:dba954151db899e2e8dea1737d3909d2c5097481bd7fce0e0e1804c954856c23",
    ),
)
MANUAL = (
    "This dataset has no public address. Manual download: put its four files (emnist47-train-images-idx3-ubyte.gz and "
    "the other three) in a folder named emnist47, and set DRAGFL_DATA to its parent folder. The official dataset is "
    "`emnist`."
)


def load(progress: Progress | None = None) -> Dataset:
    arrays = load_arrays("emnist47", cache_key(FILES), [FILES.local_source()], MANUAL, progress)
    return Dataset("emnist47", *as_tensors(arrays), classes=47, class_names=NAMES, transposed=True)
