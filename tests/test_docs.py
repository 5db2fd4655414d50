"""The documentation is correct: its code runs, its links resolve, its tables match the code.

Every fenced block of README.md, CONTRIBUTING.md and the pages under docs/ is executed, in order, in a temporary folder
per page that holds a copy of examples/: `python` blocks share a namespace, `toml` blocks must load as
experiments, and in `console` blocks the lines that start with `dragfl ` go through the command line with few rounds.
`pycon` blocks are doctests of the package, executed by its own tests.
An HTML comment on the line before a block changes that: `<!-- test: skip, reason -->`, or `<!-- file: NAME -->` where
the reader saves the block as a file.
"""

from __future__ import annotations

import dataclasses
import json
import re
import runpy
import shlex
import shutil
import sys
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

import dragfl
from dragfl import errors
from dragfl.aggregates.robust import PREAGGREGATORS
from dragfl.algorithms import AGGREGATES, PARTS, PRESETS
from dragfl.attacks import ATTACKS
from dragfl.cli import main
from dragfl.config import tables as sections
from dragfl.config.spec import TABLES as SPEC_TABLES
from dragfl.data.partitions import PARTITIONS

ROOT = Path(__file__).resolve().parents[1]
DOCS = sorted((ROOT / "docs").rglob("*.md"))
PAGES = [*(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "examples/README.md")), *DOCS]
BLOCK = re.compile(r"^(?P<indent> *)```(?P<kind>\w*)\n(?P<text>.*?)^ *```$", re.MULTILINE | re.DOTALL)
SKIP = re.compile(r"<!-- test: skip, .+ -->\s*$")
FILE = re.compile(r"<!-- file: (\S+) -->\s*$")
FEW = "rounds=2"

page = pytest.mark.parametrize("path", PAGES, ids=lambda path: str(path.relative_to(ROOT).with_suffix("")))


@dataclasses.dataclass(frozen=True)
class Block:
    kind: str
    text: str
    line: int
    file: str | None = None  # the name under which the reader saves it


def blocks(path: Path) -> Iterator[Block]:
    """The fenced blocks of a page that are not skipped."""
    whole = path.read_text()
    for found in BLOCK.finditer(whole):
        before = whole[: found.start()]
        if not SKIP.search(before):
            text = re.sub(f"^{found['indent']}", "", found["text"], flags=re.MULTILINE)
            file = FILE.search(before)
            yield Block(found["kind"], text, before.count("\n") + 2, file and file[1])


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, empty_figures: None) -> Path:
    """A temporary folder with the examples, which can be imported. tests/report saves figures."""
    shutil.copytree(ROOT / "examples", tmp_path / "examples", ignore=shutil.ignore_patterns("__pycache__", "runs"))
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path / "examples"))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    return tmp_path


@page
def test_code_runs(path: Path, folder: Path) -> None:
    # A dataclass looks its module up by name, so the namespace of the page must be a module that can be found.
    module = type(sys)("page")
    sys.modules["page"] = module
    try:
        for block in blocks(path):
            if block.file is not None:
                Path(block.file).write_text(block.text)
            elif block.kind == "python":
                code = "\n" * (block.line - 1) + block.text
                exec(compile(code, str(path), "exec"), vars(module))
            elif block.kind == "toml":
                dragfl.load(tomllib.loads(block.text))
            elif block.kind == "console":
                for command in block.text.splitlines():
                    run_command(command)
    finally:
        del sys.modules["page"]


def test_blocks_that_are_left_out() -> None:
    """They are listed with the tests that are skipped. Every such comment has a reason and stands before a block."""
    texts = [path.read_text() for path in PAGES]
    count = sum(bool(SKIP.search(text[: found.start()])) for text in texts for found in BLOCK.finditer(text))
    assert count == sum(text.count("<!-- test: skip") for text in texts)
    pytest.skip(f"{count} blocks of the documentation take too long or need more: grep -rn 'test: skip' docs")


def run_command(line: str) -> None:
    """Run one line of a console block; commands other than dragfl are skipped."""
    if not line.startswith("dragfl "):
        return
    words = shlex.split(line, comments=True)[1:]
    if words[0] in ("run", "sweep", "arena"):
        words.insert(2, FEW)
    elif words[0] in ("demo", "theory"):
        words += ["--rounds", "2"]
    assert main(words) == 0, line


@page
def test_every_block_has_a_known_kind(path: Path) -> None:
    assert {block.kind for block in blocks(path)} <= {"python", "pycon", "toml", "console", "text", ""}


@page
def test_links_resolve(path: Path) -> None:
    text = re.sub(r"`[^`\n]*`", "", BLOCK.sub("", path.read_text()))
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        if re.match(r"\w+:", target):
            continue
        name, _, anchor = target.partition("#")
        file = (path.parent / name).resolve() if name else path
        assert file.exists(), f"{path.name}: {target}"
        if anchor:
            assert anchor in anchors(file), f"{path.name}: {target}"


def anchors(file: Path) -> set[str]:
    """The anchors of a page's headings, as GitHub makes them."""
    headings = re.findall(r"^#+ (.+)$", BLOCK.sub("", file.read_text()), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-") for heading in headings}


@page
def test_tables_of_parts_are_up_to_date(path: Path) -> None:
    filled = runpy.run_path(str(ROOT / "docs" / "make_tables.py"))["filled"]
    assert path.read_text() == filled(path.read_text()), "run: python docs/make_tables.py"


def rows(text: str) -> list[list[str]]:
    """The cells of the first Markdown table in a text, without its header."""
    lines: list[str] = []
    for line in text.splitlines():
        if line.startswith("|"):
            lines.append(line)
        elif lines:
            break
    return [[cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]] for line in lines[2:]]


def section(file: str, heading: str) -> str:
    """A page from a heading to the next one."""
    text = (ROOT / "docs" / file).read_text()
    found = re.search(rf"^#+ {re.escape(heading)}$(.*?)(?=^#+ |\Z)", text, re.MULTILINE | re.DOTALL)
    assert found, f"{file} has no heading {heading!r}"
    return found[1]


def fields(*kinds: type) -> dict[str, Any]:
    """Key -> default of the dataclasses behind a table of the spec."""
    out = {}
    for kind in kinds:
        for field in dataclasses.fields(kind):
            default = field.default
            if field.default_factory is not dataclasses.MISSING:
                default = field.default_factory()
            out[field.name] = default
    return out


@dataclasses.dataclass
class NamedModel:
    name: str = "mlp"
    double_softmax: bool = False
    buffers: str = "refuse"


@dataclasses.dataclass
class NamedAttack:
    name: str


TABLES: dict[str, Mapping[str, Any]] = {
    "Top level": fields(sections.Top),
    "`[data]`": fields(sections.Data),
    "`[root]`": fields(sections.Root),
    "`[clients]`": fields(sections.Clients),
    "`[algorithm]`": {"name": "fedavg", **dict.fromkeys(PARTS)},
    "`[attack]`": fields(NamedAttack, sections.Attackers),
    "`[model]`": fields(NamedModel),
    "`[evaluation]`": fields(sections.Evaluation),
    "`[checkpoint]`": fields(sections.Checkpoint),
    "`[state]`": fields(sections.State),
    "`[engine]`": fields(sections.Engine),
}


@pytest.mark.parametrize("heading", TABLES)
def test_every_key_is_documented_with_its_default(heading: str) -> None:
    documented = {key.strip("`"): default for key, default, _ in rows(section("experiments.md", heading))}
    assert documented.keys() == TABLES[heading].keys()
    for key, default in TABLES[heading].items():
        if default is None or default is dataclasses.MISSING:
            assert documented[key] == "—", key
        else:
            assert tomllib.loads(f"v = {documented[key].strip('`')}")["v"] == default, key


def test_every_table_is_documented() -> None:
    text = (ROOT / "docs" / "experiments.md").read_text()
    documented = set(re.findall(r"^### `\[(\w+)", text, re.MULTILINE))
    assert documented == set(SPEC_TABLES)


def test_every_metric_is_documented() -> None:
    text = section("experiments.md", "Run directory")
    words = set(re.findall(r"`(\w+)`", text))
    tables = {"rounds": 2, "root": {"size": 50}, "model": {"name": "logistic"}, "evaluation": {"every": 1}}
    for name in PRESETS:
        for record in dragfl.simulate(dragfl.load({**tables, "algorithm": {"name": name}})):
            assert set(record.metrics) | set(record.clients) <= words, name


def test_exit_codes_are_those_of_the_errors() -> None:
    documented = {int(code) for code, _ in rows(section("experiments.md", "Exit codes"))}
    kinds = [kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, errors.DragflError)]
    assert documented == {0} | {kind.exit_code for kind in kinds if kind is not errors.DragflError}


def test_every_page_and_example_is_in_its_list() -> None:
    """docs/README.md is also the navigation of the site; figures are listed by the page of findings."""
    listed = (ROOT / "docs" / "README.md").read_text()
    for path in DOCS:
        name = path.relative_to(ROOT / "docs").as_posix()
        assert f"]({name})" in listed or name == "README.md" or name.startswith("reproduction/"), name
    examples = (ROOT / "examples" / "README.md").read_text()
    for path in [*(ROOT / "examples").glob("*.py"), *(ROOT / "examples").glob("*.toml")]:
        assert f"]({path.name})" in examples, path.name


def test_every_preset_setting_reaches_the_tables() -> None:
    text = (ROOT / "docs" / "algorithms.md").read_text()
    for name, preset in PRESETS.items():
        line = next(line for line in text.splitlines() if line.startswith(f"| `{name}` |"))
        assert all(f"{setting} (" in line for setting in preset.flat()), name


def test_the_readme_counts_algorithms_attacks_and_partitions() -> None:
    """The numbers of the README are those of the registries."""
    counts = re.search(r"(\d+) algorithms, (\d+) attacks and (\d+) data partitions", (ROOT / "README.md").read_text())
    assert counts is not None
    assert tuple(map(int, counts.groups())) == (len(PRESETS), len(ATTACKS), len(PARTITIONS))


def test_the_comparisons_count_robust_rules_and_attacks() -> None:
    rules = [name for name, rule in AGGREGATES.items() if hasattr(rule, "aggregates_extras") and name in PRESETS]
    rules.remove("root_only")  # a control
    assert f"| robust rules, attacks | {len(rules)}, {len(ATTACKS)} |" in (ROOT / "README.md").read_text()
    page = (ROOT / "docs" / "comparison.md").read_text()
    assert f"| robust rules + pre-aggregation | {len(rules)} + {len(PREAGGREGATORS)} |" in page
    for name, count in (
        ("algorithms", PRESETS),
        ("attacks by malicious clients", ATTACKS),
        ("data partitions", PARTITIONS),
    ):
        assert f"| {name} | {len(count)} |" in page


def test_the_speeds_of_the_readme_are_measured() -> None:
    """The rows of W1 and W3 in docs/speed/bench.json, rounded to milliseconds."""
    comparisons = json.loads((ROOT / "docs" / "speed" / "bench.json").read_text())["comparisons"]
    w1, w3 = (
        {row["name"].split()[0]: f"{1e3 * row['median']:.0f}" for row in comparison["rows"] if row["kind"] == "peer"}
        | {row["name"]: f"{1e3 * row['median']:.0f}" for row in comparison["rows"] if row["kind"] == "dragfl"}
        for comparison in comparisons
        if comparison["workload"] in ("W1", "W3")
    )
    text, names = (ROOT / "README.md").read_text(), ("dragfl, fedavg", "Flower", "fluke", "pfl-research")
    ours, flower, fluke, pfl = (w1[name] for name in names)
    assert f"| a round of FedAvg | {ours} ms | {flower} ms | {fluke} ms | not measured | {pfl} ms |" in text
    ours, flower, fluke, pfl = (w3[name] for name in names)
    assert f"{ours}, {flower}, {fluke} and {pfl} ms" in text
