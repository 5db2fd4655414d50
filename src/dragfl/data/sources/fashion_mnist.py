"""Fashion-MNIST: 60,000 + 10,000 grey 28x28 articles of clothing.

H. Xiao, K. Rasul, R. Vollgraf, Fashion-MNIST: a Novel Image Dataset for Benchmarking Machine Learning
Algorithms, 2017.
"""

from __future__ import annotations

from pathlib import Path

from dragfl.data.cache import Arrays
from dragfl.data.dataset import Dataset, as_tensors
from dragfl.data.download import Progress
from dragfl.data.locate import Source, cache_key, load_arrays
from dragfl.data.sources.idx_files import idx_files

FILES = idx_files(
    60_000,
    10_000,
    ("fashion_mnist", "fashion-mnist", "FashionMNIST/raw"),
    checksums=(
        "md5:f4a8712d7a061bf5bd6d2ca38dc4d50a",
        "md5:9018921c3c673c538a1fc5bad174d6f9",
        "md5:8181f5470baa50b63fa0f6fddb340f0a",
        "md5:15d484375f8d13e6eb1aabb0c3f46965",
    ),
    gz_checksums=(
        "md5:8d4fb7e6c68d591d4c3dfef9ec88bf0d",
        "md5:25c81989df183df01b3e8a0aad5dffbe",
        "md5:bef4ecab320f06d8554ea6380940ec79",
        "md5:bb300cfdad3c16e7a12a480ee83cd310",
    ),
)
MIRRORS = (
    "https://raw.githubusercontent.com/zalandoresearch/fashion-mnist/master/data/fashion",
    "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com",
)
DEBIAN = Path("/usr/share/datasets/fashion-mnist")  # installed by the package dataset-fashion-mnist
MANUAL = (
    "On Debian and Ubuntu: apt-get install dataset-fashion-mnist. Manual download: put train-images-idx3-ubyte, "
    "train-labels-idx1-ubyte, t10k-images-idx3-ubyte and t10k-labels-idx1-ubyte (each plain or .gz) in a folder "
    "named fashion_mnist, and set DRAGFL_DATA to its parent folder."
)
NAMES = ("T-shirt", "trouser", "pullover", "dress", "coat", "sandal", "shirt", "sneaker", "bag", "boot")


def load_from_debian(_: Path, __: Progress | None) -> Arrays:
    return FILES.read_folder(DEBIAN)


def load(progress: Progress | None = None) -> Dataset:
    debian = Source("the Debian package dataset-fashion-mnist", load_from_debian)
    sources = [FILES.local_source(), *map(FILES.mirror_source, MIRRORS), debian]
    arrays = load_arrays("fashion_mnist", cache_key(FILES), sources, MANUAL, progress)
    return Dataset("fashion_mnist", *as_tensors(arrays), classes=10, class_names=NAMES)
