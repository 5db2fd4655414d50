"""Write the tables of parts into README.md and docs/*.md, read off the parts themselves: python docs/make_tables.py

A table stands between `<!-- table: KIND -->` and `<!-- end table -->`, KIND being one of `dragfl list`, or `speed` and
`flower` for the numbers of docs/speed/bench.json and flower.json, `peers` for those of other libraries, and `faults`
for the last run of `make test-faults`, docs/reliability.json.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

from dragfl.cli.parts_table import list_rows

ROOT = Path(__file__).resolve().parents[1]
MEASURED = {"speed": "bench.json", "peers": "bench.json", "flower": "flower.json"}
PLACE = re.compile(r"(<!-- table: (\w+) -->\n).*?(<!-- end table -->)", re.DOTALL)


def table(kind: str) -> str:
    """The parts of a kind as a Markdown table."""
    sys.path.insert(0, str(ROOT))  # benchmarks and tests are not part of the package
    if kind == "faults":
        from tests.faults.table import render_markdown as render_faults

        return render_faults(ROOT / "docs" / "reliability.json")
    if kind in MEASURED:
        from benchmarks.markdown import render_markdown, render_peers

        render = render_peers if kind == "peers" else render_markdown
        return render(ROOT / "docs" / "speed" / MEASURED[kind])
    lines = ["| name | what | settings (default) |", "|---|---|---|"]
    for name, what, settings in list_rows(kind):
        cells = (f"`{name}`", what.replace("|", "\\|"), settings or "—")
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def filled(text: str) -> str:
    """The page with its tables as they should be."""
    return PLACE.sub(lambda found: found[1] + table(found[2]) + found[3], text)


def pages() -> list[Path]:
    return [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


if __name__ == "__main__":
    for page in pages():
        page.write_text(filled(page.read_text()))
