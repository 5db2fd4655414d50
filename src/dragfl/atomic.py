"""Files that are there whole or not at all: written under a temporary name, fsynced, renamed."""

from __future__ import annotations

import errno
import json
import os
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import save_file
from torch import Tensor

from dragfl.errors import Interrupted

_FULL = {
    errno.ENOSPC: "the disk is full",
    errno.EDQUOT: "the disk quota is used up",
    errno.EFBIG: "the file size limit is reached",
}


def storage_error(path: Path, error: OSError) -> Exception:
    """A full disk as an error that says what is left and what to do; any other error as it is."""
    if error.errno in _FULL:
        return Interrupted(
            f"{path}: cannot be written, {_FULL[error.errno]}; everything up to the last checkpoint is safe. "
            f"Make room, then: dragfl resume {path.parent}"
        )
    return error


def save_tensors(tensors: Mapping[str, Tensor], path: Path) -> None:
    """Write a safetensors file; its library reports a full disk in words, which become an OSError again."""
    try:
        save_file(dict(tensors), path)
    except SafetensorError as error:
        code = re.search(r"os error (\d+)", str(error))
        if code is None:
            raise
        raise OSError(int(code[1]), os.strerror(int(code[1])), str(path)) from error


def write(path: Path, save: Callable[[Path], None]) -> None:
    """Let `save` write a temporary file, then put it in the place of `path` for good."""
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
    write(path, lambda temporary: _write_all(temporary, text.encode()))


def write_json(path: Path, value: Mapping[str, Any]) -> None:
    write_text(path, json.dumps(value, indent=1) + "\n")


def _write_all(path: Path, data: bytes) -> None:
    path.write_bytes(data)


def sync_folder(folder: Path) -> None:
    """A rename is only durable once its folder is."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
