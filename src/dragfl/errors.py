"""The errors of the package, each with an exit code of the command line.

A message has the problem, the value seen and the remedy.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping


class DragflError(Exception):
    """Base class of all errors; `exit_code` is the exit code of the command line."""

    exit_code = 1


class SpecError(DragflError, ValueError):
    """The experiment, an argument or a name is invalid. Nothing was run."""

    exit_code = 2


class UnsafeSpec(SpecError):
    """In safe mode: the spec names code to import. Nothing was imported."""


class PartError(DragflError):
    """A part of the user's own raised an exception, or returned what its contract does not allow."""

    exit_code = 2


class NotFinite(PartError):
    """A part of the user's own returned a NaN or an infinity."""


class SettingError(SpecError):
    """A setting of a part is invalid: `drag.c: 1.5 is outside [0, 1]`. Where a spec sets it, its key is named."""

    def __init__(self, owner: str, name: str, problem: str) -> None:
        super().__init__(owner, name, problem)
        self.name, self.problem = name, problem

    def __str__(self) -> str:
        return "{}.{}: {}".format(*self.args)


class NotEnoughMemory(DragflError, MemoryError):
    """An allocation failed: the experiment needs more memory than there is."""

    exit_code = 2


class DataError(DragflError):
    """Data are missing, damaged or do not fit the experiment."""

    exit_code = 3


class Diverged(DragflError):
    """The model is not finite or its norm is too large; the last checkpoint is from before that round."""

    exit_code = 4


class Infeasible(DragflError):
    """Too few updates for the rule. In a run the round is skipped, and its record has the reason."""

    exit_code = 2


class Interrupted(DragflError):
    """The run was stopped before its end and can be resumed."""

    exit_code = 5


class DamagedRun(DragflError):
    """A run directory cannot be read, or its files do not match."""

    exit_code = 6


class RunsFailed(DragflError):
    """Some runs of many failed; the others have finished. `failures` maps the name of a run to its reason."""

    def __init__(self, command: str, failures: Mapping[str, str], total: int, exit_code: int = 1) -> None:
        self.failures, self.exit_code = dict(failures), exit_code
        listed = "".join(f"\n  {name}: {reason}" for name, reason in failures.items())
        super().__init__(f"{command}: {len(failures)} of {total} runs failed, the others have finished:{listed}")


class DragflWarning(UserWarning):
    """A result that may not be what it seems; the command line prints it as `warning: ...`."""


def memory_problem(error: BaseException) -> str | None:
    """What to do about an allocation that failed, in Python, numpy or torch; None for any other error."""
    if not isinstance(error, MemoryError) and "can't allocate memory" not in str(error):
        return None
    reason = str(error).strip().rpartition("DefaultCPUAllocator: ")[2].partition(" Error code")[0]
    advice = "lower clients.total, clients.batch_size, clients.local_steps or the size of the model"
    return f"not enough memory ({reason or 'allocation failed'}); {advice}"


def nearest(name: object, known: Iterable[str]) -> str:
    """`; did you mean 'x'?` for the closest known name, else the list of known names."""
    names = sorted(known)
    close = difflib.get_close_matches(str(name), names, n=1, cutoff=0.6)
    if close:
        return f"; did you mean '{close[0]}'?"
    return f"; known: {', '.join(names)}" if names else ""
