"""EMNIST balanced: 112,800 + 18,800 grey 28x28 handwritten letters and digits, 47 classes, the official split.

G. Cohen, S. Afshar, J. Tapson, A. van Schaik, EMNIST: an extension of MNIST to handwritten letters, 2017. The
files store images with rows and columns exchanged; models train on them as stored, figures show them upright.
"""

from __future__ import annotations

import io
from functools import partial
from pathlib import Path

from dragfl.data.cache import Arrays
from dragfl.data.dataset import Dataset, as_tensors
from dragfl.data.download import Progress, download, zip_member
from dragfl.data.file_formats import gunzip, verify_checksum
from dragfl.data.locate import VARIABLE, Source, cache_key, find_path, load_arrays, not_in_folders
from dragfl.data.sources.idx_files import idx_files

NAMES = tuple("0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabdefghnqrt")  # other lower-case letters count as their capital
FILES = idx_files(
    112_800,
    18_800,
    ("emnist", "emnist/gzip", "EMNIST/raw", "gzip", "."),
    prefix="emnist-balanced-",
    test_name="test",
)
MIRRORS = (
    "https://biometrics.nist.gov/cs_links/EMNIST/gzip.zip",
    "https://www.itl.nist.gov/iaui/vip/cs_links/EMNIST/gzip.zip",
)
CHECKSUM = "md5:58c8d27c78d21e728a6bc7b3cc06412e"
MANUAL = (
    "Manual download: put NIST's gzip.zip (560 MB), or its four files emnist-balanced-{train,test}-{images-idx3,"
    "labels-idx1}-ubyte.gz, in a folder named emnist, and set DRAGFL_DATA to its parent folder."
)


def read_archive(archive: Path) -> Arrays:
    """Read the balanced files of NIST's archive."""
    out = {}
    for name, file in FILES:
        packed = zip_member(archive, f"gzip/{file.name}.gz", file.size + 1024)
        out[name] = file.decode(gunzip(io.BytesIO(packed), file.name, file.size), file.name)
    return out


def load_local_archive(_: Path, __: Progress | None) -> Arrays:
    archive = find_path(("emnist/gzip.zip", "EMNIST/raw/gzip.zip", "gzip.zip"), Path.is_file)
    if archive is None:
        raise not_in_folders("emnist/gzip.zip")
    verify_checksum(archive, CHECKSUM, str(archive))
    return read_archive(archive)


def load_from_nist(url: str, folder: Path, progress: Progress | None) -> Arrays:
    return read_archive(download(url, CHECKSUM, folder / "gzip.zip", progress))


def load(progress: Progress | None = None) -> Dataset:
    sources = [
        FILES.local_source(),
        Source(f"an archive in {VARIABLE}", load_local_archive),
        *(Source(url, partial(load_from_nist, url)) for url in MIRRORS),
    ]
    arrays = load_arrays("emnist", _key(), sources, MANUAL, progress)
    return Dataset("emnist", *as_tensors(arrays), classes=47, class_names=NAMES, transposed=True)


def _key() -> str:
    """Single files have no published checksum: local ones are identified by path, size and modification time."""
    folder = FILES.find_folder()
    if folder is None:
        return cache_key(FILES, CHECKSUM)
    paths = [path for _, file in FILES if (path := file.path_in(folder))]
    return cache_key(FILES, [(str(path.resolve()), path.stat().st_size, path.stat().st_mtime_ns) for path in paths])
