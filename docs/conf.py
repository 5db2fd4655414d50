"""The documentation site: `make docs` builds it into build/docs with Sphinx. The pages stay plain Markdown.

Sphinx with furo and MyST was chosen over zensical 0.0.73, which is faster and has a stricter link check. MyST parses
CommonMark and makes the anchors of a code host, so a page needs nothing special for the site. And search works on pages
opened as files without a network; zensical's needs a script from a CDN for that, and says "Search is unavailable".
"""

import re
import tomllib
from functools import partial
from pathlib import Path

from sphinx.application import Sphinx

ROOT = Path(__file__).resolve().parents[1]
INDEX = "docs/README"  # its sections and links are the navigation

project = "dragfl"
version = release = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
project_copyright = "The dragfl authors"

extensions = ["myst_parser"]
root_doc = "README"
include_patterns = ["README.md", "CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md", "docs/**.md", "examples/**.md"]
exclude_patterns = [
    ".*",
    "build",
    "runs",
    "src",
    "tests",
    "docs/reproduction/summary.md",
    "docs/reproduction/causes.md",
]
myst_heading_anchors = 6
highlight_language = "none"

html_theme = "furo"
html_title = f"dragfl {version}"
html_static_path = ["site.css"]
html_css_files = ["site.css"]
html_show_sphinx = False
html_copy_source = False
html_show_search_summary = False  # a page opened as a file may not fetch the others


def navigation(index: Path) -> str:
    """Hidden tables of contents, one for each section of the index page, in the order of its links."""
    parts = []
    for title, text in re.findall(r"^## ([^\n]+)\n(.*?)(?=^## |\Z)", index.read_text(), re.MULTILINE | re.DOTALL):
        targets = [(index.parent / link).resolve() for link in re.findall(r"\]\(([^)#:]+\.md)\)", text)]
        pages = dict.fromkeys("/" + str(target.relative_to(ROOT).with_suffix("")) for target in targets)
        if not parts:
            pages = {f"/{INDEX}": None, **pages}
        parts.append(f"```{{toctree}}\n:hidden:\n:caption: {title}\n\n" + "\n".join(pages) + "\n```\n")
    return "\n".join(parts)


def link_to_index(found: re.Match[str], page: Path) -> str:
    """A link to a folder, which a code host shows with its README, as a link to that README."""
    index = Path(found[1]) / "README.md"
    return f"]({index})" if (page.parent / index).is_file() else found[0]


def change_source(app: Sphinx, page: str, source: list[str]) -> None:
    source[0] = re.sub(r"\]\(([^)#:]+)\)", partial(link_to_index, page=ROOT / page), source[0])
    if page == root_doc:
        index = ROOT / f"{INDEX}.md"
        app.env.note_dependency(str(index), docname=page)
        source[0] += "\n\n" + navigation(index)
    elif page == "docs/reproduction":
        source[0] += "\n\n```{toctree}\n:hidden:\n:glob:\n\nreproduction/*\n```\n"


def write_index(app: Sphinx, error: Exception | None) -> None:
    """The first page also as index.html, which a browser or a server opens."""
    if error is None and app.builder.name == "html":
        out = Path(app.outdir)
        (out / "index.html").write_bytes((out / f"{root_doc}.html").read_bytes())


def setup(app: Sphinx) -> None:
    app.connect("source-read", change_source)
    app.connect("build-finished", write_index)
