"""Writing a file whole or not at all."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def whole(path: Path) -> Iterator[Path]:
    """A name beside `path` to write to; it becomes `path` at the end, and vanishes if writing fails."""
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f".{os.getpid()}-{path.name}")  # the ending stays: matplotlib reads the format from it
    try:
        yield draft
        draft.replace(path)
    finally:
        draft.unlink(missing_ok=True)
