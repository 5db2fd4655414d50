"""The last lines of a run: what came out of it and where it is."""

from __future__ import annotations

import json
from typing import Any

from dragfl.runs.directory import Run


def print_outcome(done: Run, *, already: bool, quiet: bool, as_json: bool) -> int:
    """Say how a finished run ended; the exit code is returned (4 if it diverged)."""
    result = done.result or {}
    if as_json:
        print(json.dumps({"path": str(done.path), "already_done": already, **result}))
    elif not quiet:
        if already:
            print("already done, nothing was run")
        print(sentence(result))
        print(f"run directory: {done.path}")
    return 4 if result.get("stopped_by") == "diverged" else 0


def sentence(result: dict[str, Any]) -> str:
    """A finished run in a line."""
    if result.get("stopped_by") == "diverged":
        return str(result["message"])
    parts = [f"{result['rounds']} rounds"]
    if result.get("accuracy") is not None:
        parts.append(f"accuracy {result['accuracy']:.4f} (best {result['best_accuracy']:.4f})")
    target, reached = result.get("target_accuracy"), result.get("rounds_to_target")
    if target is not None:
        when = f"first reached in round {reached}" if reached else f"not reached (> {result['rounds']} rounds)"
        parts.append(f"target {target:g} {when}")
    return ", ".join(parts)
