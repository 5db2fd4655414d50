"""Everything that a report shows, read once from the run directories."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from dragfl.report.export import plain, report_values
from dragfl.report.find import Damaged, RunLike, load_runs
from dragfl.report.groups import Group, group_runs
from dragfl.report.outcomes import FINAL
from dragfl.report.paired import Comparison, compare_groups
from dragfl.report.tables import Row, summarize_groups


@dataclass(frozen=True)
class Summary:
    """The groups of runs, one row for each, the damaged runs, and the comparisons that were asked for."""

    groups: list[Group]
    rows: list[Row]
    damaged: list[Damaged]
    comparisons: list[Comparison]

    def values(self) -> dict[str, Any]:
        """The whole report as plain values, for JSON."""
        comparisons = [plain(comparison.values()) for comparison in self.comparisons]
        return report_values(self.rows, self.damaged) | {"comparisons": comparisons}


def read_summary(
    runs: RunLike | Sequence[RunLike], compare: Sequence[Sequence[str]] = (), metric: str = FINAL
) -> Summary:
    """Read the runs; `compare` has pairs of labels or algorithms to compare by the metric."""
    found, damaged = load_runs(runs)
    groups = group_runs(found)
    comparisons = [c for first, second in compare for c in compare_groups(groups, first, second, metric)]
    return Summary(groups, summarize_groups(groups), damaged, comparisons)
