"""Downloads from a local web server and a fake npm; malicious archives."""

from __future__ import annotations

import hashlib
import io
import tarfile
import threading
import zipfile
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from dragfl.data import download
from dragfl.errors import DataError

BODY = bytes(range(256)) * 1000
DIGEST = "md5:" + hashlib.md5(BODY).hexdigest()


class Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        if self.path == "/missing":
            self.send_error(404)
            return
        body = {"/good": BODY, "/short": BODY, "/other": BODY[:-1] + b"x"}[self.path]
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body[:1000] if self.path == "/short" else body)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    httpd = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=httpd.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{httpd.server_port}"
    httpd.shutdown()


def test_download_reports_progress(server: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    seen: list[tuple[str, int, int]] = []
    to = download.download(f"{server}/good", DIGEST, tmp_path / "file", lambda *step: seen.append(step))
    assert to.read_bytes() == BODY and seen[-1] == ("downloading file", len(BODY), len(BODY))
    assert download.download(f"{server}/good", DIGEST, tmp_path / "file").read_bytes() == BODY
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize(
    ("page", "word"),
    [("/missing", "404"), ("/short", "broken|incomplete|no connection|checksum"), ("/other", "checksum mismatch")],
)
def test_a_bad_download_leaves_nothing(server: str, tmp_path: Path, page: str, word: str) -> None:
    with pytest.raises(DataError, match=word):
        download.download(server + page, DIGEST, tmp_path / "file")
    assert not list(tmp_path.iterdir())


def test_connection_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no connection"):
        download.download("http://127.0.0.1:9/file", DIGEST, tmp_path / "file")


def fake_npm(folder: Path, script: str, monkeypatch: pytest.MonkeyPatch) -> None:
    folder.mkdir()
    (folder / "npm").write_text("#!/bin/sh\n" + script)
    (folder / "npm").chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")


def test_npm_pack(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "into").mkdir()
    fake_npm(tmp_path / "bin", 'echo "$@" > pack-1.0.tgz', monkeypatch)
    archive = download.npm_pack("pack@1.0", tmp_path / "into")
    assert archive.parent == tmp_path / "into" and archive.read_text().startswith("pack pack@1.0")
    assert "--ignore-scripts" in archive.read_text()


def test_the_output_of_a_failed_npm_is_quoted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_npm(tmp_path / "bin", "echo 'npm error network down' >&2; exit 1", monkeypatch)
    with pytest.raises(DataError, match="exit code 1: npm error network down"):
        download.npm_pack("pack", tmp_path)


def test_npm_is_not_installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(DataError, match="npm client is not installed"):
        download.npm_pack("pack", tmp_path)


def make_tar(path: Path, *members: tuple[tarfile.TarInfo, bytes]) -> Path:
    with tarfile.open(path, "w:gz") as tar:
        for info, data in members:
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
    return path


def test_tar_members_are_read_by_name_and_nothing_is_unpacked(tmp_path: Path) -> None:
    evil = (tarfile.TarInfo("../../evil"), b"x")
    archive = make_tar(tmp_path / "a.tgz", evil, (tarfile.TarInfo("package/good"), b"data"))
    assert dict(download.tar_members(archive, {"package/good": 4})) == {"package/good": b"data"}
    assert [path.name for path in tmp_path.iterdir()] == ["a.tgz"]


def test_tar_members_that_are_refused(tmp_path: Path) -> None:
    link = tarfile.TarInfo("package/good")
    link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
    for name, members, word in (
        ("link", [(link, b"")], "not a regular file"),
        ("large", [(tarfile.TarInfo("package/good"), b"12345")], "not a regular file of at most 4 bytes"),
        ("none", [], "does not contain package/good"),
    ):
        archive = make_tar(tmp_path / name, *members)
        with pytest.raises(DataError, match=word):
            list(download.tar_members(archive, {"package/good": 4}))
    (tmp_path / "junk").write_bytes(b"junk")
    with pytest.raises(DataError, match="damaged archive"):
        list(download.tar_members(tmp_path / "junk", {"package/good": 4}))


def test_zip_member(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "a.zip", "w", zipfile.ZIP_DEFLATED) as file:
        file.writestr("gzip/a", b"data")
        file.writestr("gzip/bomb", bytes(1_000_000))
    assert download.zip_member(tmp_path / "a.zip", "gzip/a", 4) == b"data"
    for name, word in (("gzip/none", "does not contain"), ("gzip/bomb", "more than 1000")):
        with pytest.raises(DataError, match=word):
            download.zip_member(tmp_path / "a.zip", name, 1000)
    (tmp_path / "junk").write_bytes(b"junk")
    with pytest.raises(DataError, match="damaged archive"):
        download.zip_member(tmp_path / "junk", "a", 1)
