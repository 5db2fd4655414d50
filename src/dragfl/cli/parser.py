"""The parser of all commands: usage errors are one line, with the closest valid word."""

from __future__ import annotations

import argparse
import difflib
from collections.abc import Iterable
from typing import Any, NoReturn

from dragfl.errors import SpecError


class Parser(argparse.ArgumentParser):
    """An argument parser that raises `SpecError`."""

    def error(self, message: str) -> NoReturn:
        command = self.prog.removeprefix("dragfl").strip()
        text = f"{command}: {message}" if command else message
        raise SpecError(text if text.endswith("?") else f"{text}; see `{self.prog} --help`")

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        if action.choices is not None and value not in action.choices:
            is_command = isinstance(action, argparse._SubParsersAction)
            what = (
                f"unknown {str(action.metavar).lower()}" if is_command else f"{action.metavar or action.dest}: unknown"
            )
            self.error(f"{what} '{value}'{did_you_mean(value, action.choices)}")


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """`; did you mean 'run'?`, or "" if nothing is close."""
    close = difflib.get_close_matches(word.partition("=")[0], list(known), n=1)
    return f"; did you mean '{close[0]}'?" if close else ""


def subcommands(command: argparse.ArgumentParser) -> dict[str, argparse.ArgumentParser]:
    """Name -> parser of the commands or actions of a command."""
    groups = [action.choices for action in command._actions if isinstance(action, argparse._SubParsersAction)]
    return dict(groups[0]) if groups else {}
