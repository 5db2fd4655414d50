"""Atomic file writes: write to a temporary name, fsync, rename. A reader sees the old file or the new one."""

from __future__ import annotations

import errno
import json
import os
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from dragfl.errors import Interrupted
from dragfl.lazy import Tensor

_NO_SPACE = {
    errno.ENOSPC: "the disk is full",
    errno.EDQUOT: "the disk quota is used up",
    errno.EFBIG: "the file size limit is reached",
}


def storage_error(path: Path, error: OSError) -> Exception:
    """`Interrupted` with advice if there was no space left on the disk, else the error itself."""
    if error.errno not in _NO_SPACE:
        return error
    return Interrupted(
        f"{path}: cannot be written, {_NO_SPACE[error.errno]}; files written before are safe. "
        f"Free some space and repeat the command; to continue a run: dragfl resume {path.parent}"
    )


def write_file(path: Path, save: Callable[[Path], object]) -> None:
    """Call `save` with a temporary path, then move the file it wrote to `path`."""
    temporary = path.with_name(path.name + ".tmp")
    try:
        save(temporary)
        with temporary.open("rb") as file:
            os.fsync(file.fileno())
        temporary.replace(path)
        sync_folder(path.parent)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        raise storage_error(path, error) from error
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def write_text(path: Path, text: str) -> None:
    write_file(path, lambda temporary: temporary.write_bytes(text.encode()))


def write_json(path: Path, value: Mapping[str, Any]) -> None:
    write_text(path, json.dumps(value, indent=1) + "\n")


def write_tensors(path: Path, tensors: Mapping[str, Tensor]) -> None:
    """Write a safetensors file. The library reports a full disk as text; it becomes an OSError again."""
    from safetensors import SafetensorError
    from safetensors.torch import save_file

    def save(temporary: Path) -> None:
        try:
            save_file(dict(tensors), temporary)
        except SafetensorError as error:
            code = re.search(r"os error (\d+)", str(error))
            if code is None:
                raise
            raise OSError(int(code[1]), os.strerror(int(code[1])), str(temporary)) from error

    write_file(path, save)


def sync_folder(folder: Path) -> None:
    """Make the renames in a folder durable."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
