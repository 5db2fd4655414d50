"""Readers on small valid files, on damaged files and on files with a wrong size in the header."""

from __future__ import annotations

import contextlib
import gzip
import io
import tracemalloc
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dragfl.data import file_formats
from dragfl.errors import DataError

IMAGES = np.arange(2 * 3 * 4).reshape(2, 3, 4).astype(np.uint8)


def test_idx_plain_and_gzipped(tmp_path: Path, idx_bytes: Callable[[np.ndarray], bytes]) -> None:
    (tmp_path / "a-idx3-ubyte").write_bytes(idx_bytes(IMAGES))
    (tmp_path / "b-idx3-ubyte.gz").write_bytes(gzip.compress(idx_bytes(IMAGES)))
    for name in ("a-idx3-ubyte", "b-idx3-ubyte.gz"):
        found = file_formats.read_idx(tmp_path / name)
        assert found.dtype == np.uint8 and (found == IMAGES).all()


def test_idx_of_big_endian_integers() -> None:
    data = bytes([0, 0, 12, 1]) + (2).to_bytes(4, "big") + (7).to_bytes(4, "big") + (300).to_bytes(4, "big")
    assert file_formats.parse_idx(data, "labels").tolist() == [7, 300]


@pytest.mark.parametrize(
    ("data", "word"),
    [
        (b"", "nothing"),
        (b"\x00\x00\x08", "not an idx file"),
        (b"\x1f\x8b\x08\x00rest", "not an idx file"),
        (b"\x00\x00\x07\x01\x00\x00\x00\x01a", "not an idx file"),
        (b"\x00\x00\x08\x03\x00\x00\x00\x02", "inside its header"),
        (b"\x00\x00\x08\x01\x00\x00\x00\x05abc", "requires 13 bytes"),
        (b"\x00\x00\x08\x01\x00\x00\x00\x02abc", "requires 10 bytes"),
        (b"\x00\x00\x08\x04" + b"\xff" * 16 + b"abc", "requires"),
    ],
)
def test_damaged_idx_is_a_data_error(data: bytes, word: str) -> None:
    with pytest.raises(DataError, match=word):
        file_formats.parse_idx(data, "file")


@given(st.binary(max_size=80))
@settings(max_examples=300, deadline=None)
def test_any_bytes_are_an_array_or_a_data_error(data: bytes) -> None:
    for read in (file_formats.parse_idx, file_formats.parse_cifar):
        with contextlib.suppress(DataError):
            read(data, "file")


def test_a_too_large_header_allocates_no_memory(tmp_path: Path) -> None:
    """A gzip of 40 bytes that claims 4 x 10^9 items: an error, without the allocation."""
    path = tmp_path / "x-idx1-ubyte.gz"
    path.write_bytes(gzip.compress(b"\x00\x00\x08\x01\xff\xff\xff\xff" + b"a" * 100))
    tracemalloc.start()
    with pytest.raises(DataError, match="requires 4294967303 bytes"):
        file_formats.read_idx(path)
    assert tracemalloc.get_traced_memory()[1] < 8_000_000
    tracemalloc.stop()


def test_a_gzip_bomb_stops_at_the_limit(tmp_path: Path) -> None:
    path = tmp_path / "bomb.gz"
    path.write_bytes(gzip.compress(bytes(50_000_000)))
    tracemalloc.start()
    with pytest.raises(DataError, match="more than the 1000 bytes"):
        file_formats.read_file(path, 1000)
    assert tracemalloc.get_traced_memory()[1] < 8_000_000
    tracemalloc.stop()


def test_truncated_and_damaged_gzip(tmp_path: Path, idx_bytes: Callable[[np.ndarray], bytes]) -> None:
    whole = gzip.compress(idx_bytes(np.arange(2000) % 251))
    for name, data in (("short.gz", whole[:-20]), ("bad.gz", whole[:40] + b"\x00\x01" + whole[42:])):
        (tmp_path / name).write_bytes(data)
        with pytest.raises(DataError, match=r"damaged gzip|cannot be read"):
            file_formats.read_idx(tmp_path / name)
        with pytest.raises(DataError, match="damaged gzip"):
            file_formats.read_file(tmp_path / name, 10_000)


def test_an_idx_gz_is_not_decompressed_beyond_its_header(tmp_path: Path) -> None:
    path = tmp_path / "x-idx1-ubyte.gz"
    path.write_bytes(gzip.compress(b"\x00\x00\x08\x01\x00\x00\x00\x05" + bytes(50_000_000)))
    with pytest.raises(DataError, match="more than the 13 bytes"):
        file_formats.read_idx(path)


def test_missing_file_is_a_data_error(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="cannot be read"):
        file_formats.read_idx(tmp_path / "none")


def test_cifar_records_by_hand() -> None:
    """Label 3, then red 1, green 2, blue 3 throughout."""
    record = bytes([3]) + bytes([1]) * 1024 + bytes([2]) * 1024 + bytes([3]) * 1024
    x, y = file_formats.parse_cifar(record * 2, "batch")
    assert x.shape == (2, 3, 32, 32) and y.tolist() == [3, 3]
    assert [int(x[0, c].mean()) for c in range(3)] == [1, 2, 3]
    with pytest.raises(DataError, match="whole number"):
        file_formats.parse_cifar(record[:-1], "batch")
    with pytest.raises(DataError, match="label of 12"):
        file_formats.parse_cifar(bytes([12]) + record[1:], "batch")


def test_npz_refuses_objects_and_reads_numbers(tmp_path: Path) -> None:
    np.savez(tmp_path / "good.npz", x=IMAGES, y=np.array([0, 1]))
    assert set(file_formats.read_npz(tmp_path / "good.npz")) == {"x", "y"}
    np.savez(tmp_path / "bad.npz", x=np.array([{"a": 1}], dtype=object))
    with pytest.raises(DataError, match="cannot be read as npz"):
        file_formats.read_npz(tmp_path / "bad.npz")
    np.save(tmp_path / "one.npy", IMAGES)
    with pytest.raises(DataError, match="without a name"):
        file_formats.read_npz(tmp_path / "one.npy")
    (tmp_path / "text.npz").write_text("hello")
    with pytest.raises(DataError):
        file_formats.read_npz(tmp_path / "text.npz")


def test_npz_with_a_too_large_header(tmp_path: Path) -> None:
    header = io.BytesIO()
    np.lib.format.write_array_header_1_0(header, {"descr": "|u1", "fortran_order": False, "shape": (2**50,)})
    with zipfile.ZipFile(tmp_path / "large.npz", "w") as file:
        file.writestr("x.npy", header.getvalue() + b"abc")
    with pytest.raises(DataError):
        file_formats.read_npz(tmp_path / "large.npz")


def test_verify_checksum() -> None:
    file_formats.verify_checksum(b"abc", "md5:900150983cd24fb0d6963f7d28e17f72", "file")
    with pytest.raises(DataError, match="md5 is 900150983cd24fb0d6963f7d28e17f72, expected 00"):
        file_formats.verify_checksum(b"abc", "md5:00", "file")


def test_no_reader_unpickles() -> None:
    """No module of dragfl.data imports pickle, and every np.load forbids it."""
    for path in Path(file_formats.__file__).parent.rglob("*.py"):
        text = path.read_text()
        assert "pickle" not in text.replace("allow_pickle=False", "").replace("unpickled", ""), path
        assert all("allow_pickle=False" in line for line in text.splitlines() if "np.load(" in line), path
