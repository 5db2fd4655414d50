"""The result of one check."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Literal

EXPIRY_DAYS = 30


@dataclass(frozen=True)
class Finding:
    """One check: its name, how it ended, and what was seen and is to be done."""

    name: str
    status: Literal["ok", "fail", "not checked"]
    text: str


def expiry(name: str, what: str, until: datetime, advice: str) -> Finding:
    """Fail if a certificate ends within `EXPIRY_DAYS` days."""
    days = (until - datetime.now(UTC)).total_seconds() / 86400
    if days < 0:
        return Finding(name, "fail", f"{what}: expired on {until:%Y-%m-%d}; {advice}")
    if days < EXPIRY_DAYS:
        return Finding(name, "fail", f"{what}: expires on {until:%Y-%m-%d}, in {days:.0f} days; {advice}")
    return Finding(name, "ok", f"{what}: valid for {days:.0f} days")
