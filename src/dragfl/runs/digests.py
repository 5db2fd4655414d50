"""Checksums of the files of a run. They detect damage, not forgery. Imports no torch.

| file | its checksum is in |
|---|---|
| run.json, checkpoint.json, nodes.json | the file itself, key `digest` |
| spec.toml, the settings that decide the result | run.json, `settings` |
| tensors of the checkpoint; the logs up to the checkpoint | checkpoint.json, `blake2b` and `digests` |
| result.json, model.safetensors, nodes.json and the whole logs of a finished run | run.json, `files` |

Runs of earlier versions have only some of them; what has no checksum is not compared.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

SELF = "digest"  # the key of a table with the checksum of its other keys
MISMATCH = "checksum mismatch"


class LogEnd(NamedTuple):
    """The length of a log at a checkpoint, and the checksum of these bytes; None in a checkpoint without one."""

    length: int = 0
    digest: str | None = None


def new_digest(data: bytes = b"") -> Any:
    return hashlib.blake2b(data, digest_size=20)


def bytes_digest(data: bytes) -> str:
    return str(new_digest(data).hexdigest())


def file_digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, new_digest).hexdigest()


def table_digest(table: Mapping[str, Any]) -> str:
    """The checksum of a table's content, whatever the order of its keys."""
    return bytes_digest(json.dumps(table, sort_keys=True).encode())


def with_digest(table: Mapping[str, Any]) -> dict[str, Any]:
    """The table with the checksum of its content."""
    content = {key: value for key, value in table.items() if key != SELF}
    return {**content, SELF: table_digest(content)}


def is_intact(table: Mapping[str, Any]) -> bool:
    """Whether the content of a table has the checksum that the table names; True if it names none."""
    return SELF not in table or with_digest(table)[SELF] == table[SELF]
