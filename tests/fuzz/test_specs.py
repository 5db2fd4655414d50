"""Random specs, files and overrides train or are refused with a message; `make test-all` searches for new ones."""

from __future__ import annotations

import os
import resource
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, event, given, settings

import dragfl
from dragfl.errors import NotEnoughMemory
from tests.fuzz import specs
from tests.fuzz.check import outcome

EXAMPLES = 120 if os.environ.get("HYPOTHESIS_PROFILE") != "explore" else 5000
MEMORY = 4 << 30  # bytes that a spec may take beyond what the process has: sizes beyond are refused, not swapped
fuzzed = settings(max_examples=EXAMPLES, suppress_health_check=list(HealthCheck))


@pytest.fixture(scope="module", autouse=True)
def limits(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """An empty current folder, and less memory than an absurd size takes."""
    before, here = resource.getrlimit(resource.RLIMIT_AS), Path.cwd()
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + MEMORY, before[1]))
    os.chdir(tmp_path_factory.mktemp("empty"))
    yield
    os.chdir(here)
    resource.setrlimit(resource.RLIMIT_AS, before)


@fuzzed
@given(specs.specs())
def test_tables(tables: dict[str, Any]) -> None:
    event(outcome(tables)[0])


@fuzzed
@given(specs.texts())
def test_toml(text: str) -> None:
    event(outcome(text)[0])


@fuzzed
@given(specs.valid(), specs.overrides())
def test_overrides(tables: dict[str, Any], words: list[str]) -> None:
    event(outcome(tables, words)[0])


@pytest.mark.parametrize(
    "tables",
    [
        {"model": {"name": "mlp", "hidden": 10**8}},
        {"clients": {"batch_size": 10**9}},
        {"clients": {"local_steps": 10**9}},
        {"clients": {"total": 10**9, "per_round": 1}, "data": {"partition": {"kind": "resampled", "k": 1}}},
    ],
)
def test_sizes_that_do_not_fit_in_memory(tables: dict[str, Any]) -> None:
    with pytest.raises(NotEnoughMemory, match=r"not enough memory \(.*allocate.*\); lower clients\.total"):
        next(iter(dragfl.simulate({"model": {"name": "logistic"}, **tables})))
