"""Everything that a report shows, read once from the run directories."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from dragfl.report.export import plain, report_values
from dragfl.report.find import Damaged, Found, RunLike, load_runs
from dragfl.report.groups import Group, group_runs
from dragfl.report.nodes import node_values
from dragfl.report.outcomes import FINAL
from dragfl.report.paired import Comparison, compare_groups
from dragfl.report.tables import Row, summarize_groups


@dataclass(frozen=True)
class Summary:
    """The groups of runs, one row for each, what was found and left out, and the comparisons."""

    groups: list[Group]
    rows: list[Row]
    found: Found
    comparisons: list[Comparison]

    @property
    def damaged(self) -> list[Damaged]:
        return self.found.damaged

    def values(self) -> dict[str, Any]:
        """The whole report as plain values, for JSON."""
        nodes = node_values(self.groups)
        return report_values(self.rows) | {
            "damaged": [{"path": str(run.path), "reason": run.reason} for run in self.damaged],
            "tuning_runs_left_out": self.found.tuning,
            "final_runs_left_out": self.found.not_selected,
            "comparisons": [plain(comparison.values()) for comparison in self.comparisons],
            **({"nodes": nodes} if nodes else {}),
        }


def read_summary(
    runs: RunLike | Sequence[RunLike], compare: Sequence[Sequence[str]] = (), metric: str = FINAL
) -> Summary:
    """Read the runs; `compare` has pairs of labels or algorithms to compare by the metric."""
    found = load_runs(runs)
    groups = group_runs(found.runs)
    comparisons = [c for first, second in compare for c in compare_groups(groups, first, second, metric)]
    return Summary(groups, summarize_groups(groups), found, comparisons)
