"""Several `flwr` commands in one process: `python -m dragfl.flower.commands`. Each `flwr` would take a second to start.

Reads the arguments of a command as a JSON list from each line of its input, and writes one line for each: the object
that `--format json` prints, or `{"success": true, "text": ...}`. Ends when its input is closed.
"""

from __future__ import annotations

import io
import json
import subprocess
import sys
from collections.abc import Mapping
from types import TracebackType
from typing import Any

from dragfl.errors import DragflError


class FlowerCommands:
    """A process that runs `flwr` commands; FLWR_HOME of its environment has their configuration."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", "dragfl.flower.commands"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=dict(environment),
            text=True,
            start_new_session=True,  # Ctrl-C is for the caller alone
        )
        assert self._process.stdin is not None and self._process.stdout is not None
        self._input, self._output = self._process.stdin, self._process.stdout

    def __enter__(self) -> FlowerCommands:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._process.kill()
        self._process.wait()

    def __call__(self, *arguments: str) -> dict[str, Any]:
        """The answer of `flwr ARGUMENTS`; `DragflError` if it fails."""
        try:
            self._input.write(json.dumps(arguments) + "\n")
            self._input.flush()
            answer: dict[str, Any] = json.loads(self._output.readline() or '{"error-message": "its process has ended"}')
        except BrokenPipeError:
            answer = {"error-message": "its process has ended"}
        if not answer.get("success"):
            raise DragflError(f"flwr {' '.join(arguments)}: {answer.get('error-message', answer)}")
        return answer


def serve() -> None:
    """Answer one line after the other."""
    from flwr.cli.app import app

    answers = sys.stdout
    for line in sys.stdin:
        printed = io.StringIO()
        sys.stdout = sys.__stdout__ = sys.stderr = sys.__stderr__ = printed  # type: ignore[assignment,misc]
        try:
            app(json.loads(line), standalone_mode=False)
            answer = _parsed(printed.getvalue())
        except (Exception, SystemExit) as error:
            answer = {"success": False, "error-message": f"{printed.getvalue()}{error}"}
        answers.write(json.dumps(answer) + "\n")
        answers.flush()


def _parsed(printed: str) -> dict[str, Any]:
    try:
        found = json.loads(printed)
    except ValueError:
        found = None
    return found if isinstance(found, dict) else {"success": True, "text": printed}


if __name__ == "__main__":
    serve()
