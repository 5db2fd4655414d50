"""The table in the docstring of a part: its arguments and their symbols in the paper."""

from __future__ import annotations

import re
from typing import Any

ASSUMED_F = "f, assumed number of malicious updates; see [its default](robust.md#the-assumed-f)"


def symbols(part: Any) -> dict[str, str]:
    """Argument -> symbol, from the table in a part's docstring; f means the same in every rule."""
    table: list[tuple[str, str]] = re.findall(r"^ *\| *(\w+) *\| *(.+?) *\|$", part.__doc__ or "", re.MULTILINE)
    shared = {"f": ASSUMED_F} if "f" in getattr(part, "__dataclass_fields__", {}) else {}
    return {**shared, **dict(table[1:])}
