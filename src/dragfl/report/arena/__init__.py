"""The report of an arena: accuracy of every defence under every attack, detection of attackers, cost of a round.

It reads `arena.json` and the run directories of the arena, finished or not; `dragfl.report.write_arena_report` writes
the page.
"""

from __future__ import annotations

from dragfl.report.arena.numbers import arena_numbers
from dragfl.report.arena.results import ArenaResults, Entry, Matrix, load_arena
from dragfl.report.arena.tables import rich_tables, summarize_arena

__all__ = ["ArenaResults", "Entry", "Matrix", "arena_numbers", "load_arena", "rich_tables", "summarize_arena"]
