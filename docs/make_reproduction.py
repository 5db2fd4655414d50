"""Write docs/reproduction.md and its figures from the summaries in docs/reproduction: python docs/make_reproduction.py

The summaries are written by `dragfl paper PANEL ... --out docs/reproduction`; nothing is run here.
"""

from __future__ import annotations

from pathlib import Path

from dragfl.reproduction import page

DOCS = Path(__file__).resolve().parent

if __name__ == "__main__":
    page.write(DOCS / "reproduction", DOCS / "reproduction.md")
