"""The documentation site builds without a warning, its links resolve, and its search works without a network."""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

ROOT = Path(__file__).resolve().parents[1]
MISSING = [name for name in ("sphinx", "furo", "myst_parser") if importlib.util.find_spec(name) is None]
BROWSER = shutil.which("chromium") or shutil.which("google-chrome")

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(bool(MISSING), reason=f"not installed: {', '.join(MISSING)}; pip install 'dragfl[docs]'"),
]


class Page(HTMLParser):
    """The anchors, links and loaded files of a page."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.anchors: set[str] = set()
        self.links: list[str] = []
        self.loaded: list[str] = []  # what a browser fetches without a click
        self.feed(path.read_text())

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = {name: value or "" for name, value in attrs}
        self.anchors |= {values[key] for key in ("id", "name") if values.get(key)}
        if tag == "a" and "href" in values:
            self.links.append(values["href"])
        elif tag == "link" and values.get("rel") == "stylesheet":
            self.loaded.append(values["href"])
        elif tag in ("script", "img", "iframe", "source") and "src" in values:
            self.loaded.append(values["src"])


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site, built as `make docs` does; a warning is a failure."""
    out = tmp_path_factory.mktemp("site")
    command = [
        sys.executable,
        "-m",
        "sphinx",
        "--quiet",
        "--fail-on-warning",
        "--keep-going",
        "-c",
        "docs",
        ".",
        str(out),
    ]
    built = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert built.returncode == 0 and not built.stderr, built.stderr
    return out


@pytest.fixture(scope="module")
def pages(site: Path) -> dict[Path, Page]:
    return {path: Page(path) for path in site.rglob("*.html")}


def test_every_markdown_page_is_on_the_site(pages: dict[Path, Page], site: Path) -> None:
    written = {path.relative_to(site).with_suffix("") for path in pages}
    fragments = {ROOT / "docs" / "reproduction" / name for name in ("summary.md", "causes.md")}
    for source in sorted({ROOT / "README.md", *(ROOT / "docs").rglob("*.md")} - fragments):
        assert source.relative_to(ROOT).with_suffix("") in written
    assert (site / "index.html").is_file()


def test_links_and_anchors_resolve(pages: dict[Path, Page]) -> None:
    broken = []
    for path, page in pages.items():
        for link in (*page.links, *page.loaded):
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                continue
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            anchors = pages[target].anchors if target in pages else set()
            if not target.is_file() or (parts.fragment and unquote(parts.fragment) not in anchors):
                broken.append(f"{path.name}: {link}")
    assert not broken


def test_pages_load_nothing_from_the_network(pages: dict[Path, Page]) -> None:
    assert not [(path.name, link) for path, page in pages.items() for link in page.loaded if urlsplit(link).netloc]


@pytest.mark.skipif(BROWSER is None, reason="needs Chromium: apt-get install chromium")
@pytest.mark.parametrize(("words", "found"), [("coherence confirmed", True), ("coherence unheardof", False)])
def test_search_works_on_pages_opened_as_files(site: Path, tmp_path: Path, words: str, found: bool) -> None:
    """Both words are in the table of metrics of one page; the browser has no network."""
    url = f"{(site / 'search.html').as_uri()}?q={words.replace(' ', '+')}"
    options = ["--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking"]
    options += ["--disable-sync", "--disable-component-update", f"--user-data-dir={tmp_path}"]
    options += ["--host-resolver-rules=MAP * ~NOTFOUND", "--virtual-time-budget=20000", "--dump-dom"]
    shown = subprocess.run([str(BROWSER), *options, url], capture_output=True, text=True, check=True).stdout
    results = shown.partition('id="search-results"')[2].partition("</ul>")[0]
    assert ('href="docs/experiments.html' in results) is found
