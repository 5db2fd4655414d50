"""The pages in a browser: sort, filter, values under the pointer, two widths, light and dark.

Slow: drawing the figures of two reports and starting Chromium take about half a minute.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from dragfl import report

from .browser import Page, find_chromium, open_browser
from .conftest import write_run
from .test_arena import write_arena

CHROMIUM = find_chromium()
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium: apt-get install chromium"),
]
LABEL = "a_model_with_a_rather_long_name_and_<b>many</b>_words"
WIDTHS = (390, 1400)
ROUNDS = 20


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Twelve rows: constant accuracies, models of different size, one diverged run, one unfinished."""
    runs = tmp_path_factory.mktemp("runs")
    for i in range(9):
        spec = {"clients.lr": i / 10, "model.name": LABEL}
        run = write_run(runs / f"run{i}", algorithm="fedavg", rounds=ROUNDS, curve=[(i + 1) / 10] * 10, spec=spec)
        result = run.path / "result.json"
        result.write_text(json.dumps(json.loads(result.read_text()) | {"bytes_up": 300 * 1000 ** min(i, 5)}))
    for seed in (0, 1):
        write_run(runs / f"drag{seed}", seed=seed, rounds=ROUNDS, curve=[0.5 + 0.04 * seed] * 10)
    write_run(runs / "boom", algorithm="fltrust", rounds=ROUNDS, ran=7, curve=[0.3] * 3, diverged=True)
    write_run(runs / "open", algorithm="br_drag", rounds=ROUNDS, ran=9, curve=[0.4] * 4, finished=False)
    return report.write_report(runs, tmp_path_factory.mktemp("out"))


@pytest.fixture(scope="module")
def arena_page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return report.write_arena_report(write_arena(tmp_path_factory.mktemp("arena")))


@pytest.fixture
def browser(tmp_path: Path) -> Iterator[Page]:
    assert CHROMIUM is not None
    with open_browser(CHROMIUM, tmp_path / "profile") as browser:
        yield browser
        assert browser.problems == [], "errors of the console, or requests"


def texts(browser: Page, selector: str) -> list[str]:
    """The texts of the elements, in their order in the page."""
    code = f"[...document.querySelectorAll({selector!r})].map(e => e.innerText.trim())"
    return list(browser.eval(code))


def column(browser: Page, table: int, place: int) -> list[str]:
    """The cells of the visible rows."""
    rows = f"[...document.querySelectorAll('table.sortable')[{table}].querySelectorAll('tbody tr')]"
    cells = browser.eval(f"{rows}.filter(r => !r.hidden).map(r => r.cells[{place}].innerText.trim())")
    return [text.replace("\u00a0", " ") for text in cells]


@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("width", WIDTHS)
def test_nothing_is_wider_than_the_window(page: Path, arena_page: Path, browser: Page, width: int, dark: bool) -> None:
    """What is wider, such as a table, is inside an element that scrolls."""
    for path in (page, arena_page):
        browser.open(path, width, dark=dark)
        assert browser.eval("document.documentElement.scrollWidth") == width
        wide = browser.eval(
            "[...document.querySelectorAll('body *')].filter(e => !e.closest('.scroll, pre, .chart svg')"
            " && e.getBoundingClientRect().right > innerWidth + 1).map(e => e.outerHTML.slice(0, 80))"
        )
        assert wide == []
        background = browser.eval("getComputedStyle(document.body).backgroundColor")
        assert (background == "rgb(255, 255, 255)") == (not dark)


@pytest.mark.parametrize("width", WIDTHS)
def test_a_diverged_run_is_seen_without_scrolling(page: Path, browser: Page, width: int) -> None:
    browser.open(page, width, height=844)
    bottom = browser.eval("document.querySelector('.alert').getBoundingClientRect().bottom")
    assert bottom < 844
    assert texts(browser, ".alert")[0].startswith("Diverged: fltrust (round 8)")


def test_tables_are_sorted_by_their_numbers(page: Path, browser: Page) -> None:
    """Bytes up are 300 B, 300 kB, ...; a row without a number is last in both directions."""
    browser.open(page, 1400)
    names = texts(browser, "table.sortable th")
    place = names.index("final accuracy")
    for direction in ("ascending", "descending"):
        browser.click("table.sortable th button", place)
        accuracy = column(browser, 0, place)
        *numbers, last = [text.split(" %")[0].split(" ±")[0] for text in accuracy]
        found = [float(number) for number in numbers]
        assert found == sorted(found, reverse=direction == "descending") and last == "—"
        assert browser.eval("document.querySelector('th[aria-sort]').ariaSort") == direction
    browser.click("table.sortable th button")
    assert column(browser, 0, 0) == sorted(column(browser, 0, 0))
    costs = browser.eval("[...document.querySelectorAll('table.sortable')][1].tHead.rows[0].cells[1].innerText")
    assert costs == "bytes up"
    browser.eval("document.querySelectorAll('table.sortable')[1].querySelectorAll('th button')[1].click()")
    sizes = [text for text in column(browser, 1, 1) if text.startswith("300")]
    assert sizes == ["300 B", "300 kB", "300 MB", "300 GB", "300 TB", *["300 PB"] * 4]


def test_the_filter_applies_to_all_tables_and_curves(page: Path, browser: Page) -> None:
    browser.open(page, 1400)
    curves = "figure#accuracy g.run"
    assert len(column(browser, 0, 0)) == 12 and browser.eval(f"document.querySelectorAll('{curves}').length") == 12
    browser.type(".filter input", "FEDAVG lr=0.3")
    for table in range(browser.eval("document.querySelectorAll('table.sortable').length")):
        assert len(column(browser, table, 0)) == 1, table
    assert browser.eval(f"document.querySelectorAll('{curves}').length") == 1
    assert texts(browser, ".filter output") == ["1 of 12 rows"]
    browser.type(".filter input", "nothing like this")
    assert texts(browser, ".filter output") == ["no row matches"] and column(browser, 0, 0) == []
    browser.type(".filter input", "")
    assert len(column(browser, 0, 0)) == 12
    browser.click(".alert button")
    assert [text.split()[0] for text in column(browser, 0, 0)] == ["fltrust"]


@pytest.mark.parametrize("width", WIDTHS)
def test_the_pointer_shows_run_round_and_value(page: Path, browser: Page, width: int) -> None:
    """drag has the accuracies 0.5 and 0.54 in every evaluated round; the pointer is close to round 10."""
    browser.open(page, width)
    browser.type(".filter input", "algorithm.name=drag")
    assert browser.eval("document.querySelector('figure#accuracy .tip').hidden")
    x, y = browser.eval(
        "(p => { const m = p.getScreenCTM(), n = p.getPointAtLength(p.getTotalLength() * 4 / 9);"
        " const q = n.matrixTransform(m); return [q.x, q.y]; })"
        "(document.querySelector('figure#accuracy g.run path.curve'))"
    )
    browser.move(x + 2, y + 4)
    assert texts(browser, "figure#accuracy .tip") == [
        "drag\nround 10: test accuracy 52.0 %\nrange over seeds 50.0 % to 54.0 %"
    ]
    box = browser.eval("(b => [b.left, b.right])(document.querySelector('.tip').getBoundingClientRect())")
    assert 0 <= box[0] < box[1] <= width
    browser.move(5, 5)
    assert browser.eval("document.querySelector('figure#accuracy .tip').hidden")


def test_labels_of_users_are_text(page: Path, browser: Page) -> None:
    """A label with markup is shown as it is, in the table, in the plot and under the pointer."""
    browser.open(page, 1400)
    assert not browser.eval("[...document.querySelectorAll('b')].some(e => e.textContent === 'many')")


def test_tables_of_an_arena_are_sorted(arena_page: Path, browser: Page) -> None:
    browser.open(arena_page, 390)
    before = column(browser, 0, 1)
    browser.click("table.sortable th button", 1)
    numbers = [float(text.split()[0]) for text in column(browser, 0, 1) if text[0].isdigit()]
    assert numbers == sorted(numbers) and sorted(before) == sorted(column(browser, 0, 1))
