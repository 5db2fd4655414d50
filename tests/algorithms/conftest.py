"""Every algorithm is checked on both problems."""

from __future__ import annotations

import functools

import pytest

from tests.algorithms.problems import Digits, Problem, Quadratic

PROBLEMS = {"quadratic": Quadratic, "digits": functools.cache(Digits)}


@pytest.fixture(params=PROBLEMS)
def problem(request: pytest.FixtureRequest) -> Problem:
    made: Problem = PROBLEMS[request.param]()
    return made
