"""Replies that were refused and clients that failed, counted by node and reason."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Mapping

from dragfl.flower.records import Refused

LOG = logging.getLogger("dragfl")


class Refusals:
    """Counts refusals by node and reason. The first of each kind is logged as a warning, with the value seen.

    `counts` maps the name of a node to the counts of its reasons: {"15531545569531897383": {"not finite": 3}}.
    """

    def __init__(self) -> None:
        self._counts: dict[str, Counter[str]] = {}
        self.last = ""  # the last one, as text

    @property
    def counts(self) -> Mapping[str, Mapping[str, int]]:
        return {node: dict(reasons) for node, reasons in self._counts.items()}

    @property
    def total(self) -> int:
        """The number of all refusals so far."""
        return sum(sum(reasons.values()) for reasons in self._counts.values())

    def add(self, node: str, reason: str, detail: str = "") -> None:
        """Count a refusal. `Refused` cleans a detail that a client has written; so does this."""
        refused = Refused(reason, detail)
        self.last = f"{node}: {refused}"
        reasons = self._counts.setdefault(node, Counter())
        reasons[reason] += 1
        if reasons[reason] == 1:
            LOG.warning("node %s: left out: %s (logged once, then counted)", node, refused)

    def as_table(self) -> list[dict[str, str | int]]:
        """One row for each node and reason, sorted by both: {"node": ..., "reason": ..., "count": ...}."""
        return [
            {"node": node, "reason": reason, "count": count}
            for node, reasons in sorted(self._counts.items())
            for reason, count in sorted(reasons.items())
        ]
