"""EMNIST balanced: 112,800 + 18,800 grey 28x28 handwritten letters and digits, 47 classes, the official split.

G. Cohen, S. Afshar, J. Tapson, A. van Schaik, EMNIST: an extension of MNIST to handwritten letters, 2017. The
files store images with rows and columns exchanged; they are trained on as stored and shown upright.
"""

from __future__ import annotations

import io
from functools import partial
from typing import TYPE_CHECKING

from dragfl.data.dataset import Dataset
from dragfl.data.download import Progress, download, zip_member
from dragfl.data.file_formats import gunzip, verify
from dragfl.data.locate import VARIABLE, Way, folders, obtain, pin
from dragfl.data.sources.idx_files import File, Files, tensors
from dragfl.errors import DataError

if TYPE_CHECKING:
    from pathlib import Path

    from dragfl.data.cache import Arrays

NAMES = tuple("0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabdefghnqrt")  # lower-case letters like their capital are merged
FILES = Files(
    File("emnist-balanced-train-images-idx3-ubyte", (112_800, 28, 28)),
    File("emnist-balanced-train-labels-idx1-ubyte", (112_800,)),
    File("emnist-balanced-test-images-idx3-ubyte", (18_800, 28, 28)),
    File("emnist-balanced-test-labels-idx1-ubyte", (18_800,)),
    places=("emnist", "emnist/gzip", "EMNIST/raw", "gzip", "."),
)
MIRRORS = (
    "https://biometrics.nist.gov/cs_links/EMNIST/gzip.zip",
    "https://www.itl.nist.gov/iaui/vip/cs_links/EMNIST/gzip.zip",
)
DIGEST = "md5:58c8d27c78d21e728a6bc7b3cc06412e"
BY_HAND = (
    "By hand: put NIST's gzip.zip (560 MB), or its four files emnist-balanced-{train,test}-{images-idx3,labels-idx1}"
    "-ubyte.gz, in a folder named emnist, and name the folder above it in DRAGFL_DATA."
)


def from_zip(archive: Path) -> Arrays:
    """The balanced files of NIST's archive."""
    out = {}
    for name, file in FILES:
        packed = zip_member(archive, f"gzip/{file.name}.gz", file.size + 1024)
        out[name] = file.decode(gunzip(io.BytesIO(packed), file.name, file.size), file.name)
    return out


def own_archive() -> Path | None:
    """A gzip.zip that the user has brought."""
    places = (top / sub for top in folders() for sub in ("emnist/gzip.zip", "EMNIST/raw/gzip.zip", "gzip.zip"))
    return next((path for path in places if path.is_file()), None)


def from_own_archive(_: Path, __: Progress | None) -> Arrays:
    archive = own_archive()
    if archive is None:
        raise DataError("no emnist/gzip.zip there")
    verify(archive, DIGEST, str(archive))
    return from_zip(archive)


def from_nist(url: str, spare: Path, progress: Progress | None) -> Arrays:
    return from_zip(download(url, DIGEST, spare / "gzip.zip", progress))


def load(progress: Progress | None = None) -> Dataset:
    ways = [
        FILES.local(),
        Way(f"an archive in {VARIABLE}", from_own_archive),
        *(Way(url, partial(from_nist, url)) for url in MIRRORS),
    ]
    arrays = obtain("emnist", _key(), ways, BY_HAND, progress)
    return Dataset("emnist", *tensors(arrays), classes=47, class_names=NAMES, transposed=True)


def _key() -> str:
    """Single files have no published checksum: a user's own are known by their path, size and time of change."""
    folder = FILES.find()
    if folder is None:
        return pin(FILES, DIGEST)
    paths = [path for _, file in FILES if (path := file.stored(folder))]
    return pin(FILES, [(str(path.resolve()), path.stat().st_size, path.stat().st_mtime_ns) for path in paths])
