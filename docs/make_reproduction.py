"""Write docs/reproduction.md and its figures from the summaries in docs/reproduction: python docs/make_reproduction.py

The summaries are written by `dragfl reproduce FIGURE ... --out docs/reproduction`; no run is needed.
"""

from __future__ import annotations

from pathlib import Path

from dragfl.reproduction.page import write_page

DOCS = Path(__file__).resolve().parent

if __name__ == "__main__":
    write_page(DOCS / "reproduction", DOCS / "reproduction.md")
