"""The command line: one thin file per command. Every command calls a public function of the library."""

from __future__ import annotations

import argparse
import os
import sys
import warnings
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any, NoReturn

from dragfl import __version__
from dragfl.cli.parser import Parser, did_you_mean, subcommands
from dragfl.errors import DragflError, DragflWarning, SpecError, memory_problem

DESCRIPTION = "Federated learning under non-IID data and attacks: DRAG, BR-DRAG, baselines."
EPILOG = """\
Exit codes: 0 success, 1 a run raised an error, 2 usage or spec error, 3 data error,
            4 diverged, 5 interrupted (resumable), 6 damaged run

`dragfl COMMAND --help` shows the options of a command."""
RESUMABLE = ("run", "resume", "sweep", "arena", "reproduce", "demo")


def parser() -> argparse.ArgumentParser:
    from dragfl.cli import (
        arena,
        check,
        completion,
        data,
        demo,
        deploy,
        doctor,
        init,
        list_parts,
        migrate,
        report,
        reproduce,
        resume,
        run,
        schema,
        sweep,
        theory,
    )

    as_written = argparse.RawDescriptionHelpFormatter  # keeps the line breaks of the epilog
    top = Parser(prog="dragfl", description=DESCRIPTION, epilog=EPILOG, formatter_class=as_written)
    top.add_argument("-V", "--version", action="version", version=f"dragfl {__version__}")
    top.set_defaults(run=lambda args: print(top.format_help(), end="") or 0)  # without a command
    commands = top.add_subparsers(title="commands", metavar="COMMAND")
    for command in (
        demo,
        init,
        run,
        sweep,
        arena,
        reproduce,
        resume,
        report,
        theory,
        data,
        list_parts,
        check,
        deploy,
        migrate,
        doctor,
        schema,
        completion,
    ):
        command.add(commands)
    return top


def _parse(argv: list[str]) -> argparse.Namespace:
    top = parser()
    args, rest = top.parse_known_args(argv)
    if rest:  # argparse does not collect key=value words that come after options
        words = [word for word in rest if not word.startswith("-") and hasattr(args, "words")]
        if words != rest:
            _refuse(top, argv, [word for word in rest if word not in words])
        args.words += words
    return args


def _refuse(command: argparse.ArgumentParser, argv: list[str], unknown: list[str]) -> NoReturn:
    """The error for arguments that the command does not have, with the closest of its options."""
    for word in argv:
        command = subcommands(command).get(word, command)
    options = command._option_string_actions
    hints = [hint for word in unknown if word.startswith("-") and (hint := did_you_mean(word, options))]
    command.error(f"unrecognized arguments: {' '.join(unknown)}{hints[0] if hints else ''}")


def main(argv: list[str] | None = None) -> int:
    """Run one command; returns the exit code."""
    args = None
    try:
        args = _parse(sys.argv[1:] if argv is None else argv)
        with warnings.catch_warnings(), _safe_mode(args):
            warnings.simplefilter("once", DragflWarning)
            warnings.showwarning = _print_warning
            code = int(args.run(args))
        sys.stdout.flush()
        return code
    except DragflError as error:
        _print_error(error)
        return error.exit_code
    except KeyboardInterrupt:
        print("dragfl: stopped immediately; a run can be resumed from its last checkpoint", file=sys.stderr)
        return 5
    except (BrokenPipeError, SystemExit) as error:  # the output pipe was closed, as in `dragfl list | head`
        if isinstance(error, SystemExit) and error.code != 1:  # rich exits with 1 on a closed pipe
            raise
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # so that the flush at exit cannot fail
        return 5 if args is not None and args.run.__module__.rpartition(".")[2] in RESUMABLE else 0
    except (OSError, MemoryError, RuntimeError) as error:
        problem = _describe_system_error(error)
        if problem is None:
            raise
        print(f"dragfl: {problem}", file=sys.stderr)
        return SpecError.exit_code


def _safe_mode(args: argparse.Namespace) -> AbstractContextManager[None]:
    """With `--safe` no code of the user is imported while the command runs."""
    if not getattr(args, "safe", False):
        return nullcontext()
    if any(Path(entry).resolve() == Path.cwd() for entry in sys.path):
        raise SpecError(
            "--safe: Python looks for modules in the current folder first, so a file such as ./numpy.py would be "
            "imported; start `dragfl` or `python -P -m dragfl`, with no entry for this folder in PYTHONPATH"
        )
    from dragfl.own_code import refuse_own_code

    return refuse_own_code()


def _print_error(error: DragflError) -> None:
    """Print the message, and the traceback of the user's own code if that has raised it."""
    from dragfl.own_code import own_traceback

    for text in (f"dragfl: {error}", own_traceback(error)):
        if text:  # a name in a file of others may hold codes that a terminal would obey
            print("".join(c if c.isprintable() or c == "\n" else repr(c)[1:-1] for c in text), file=sys.stderr)


def _describe_system_error(error: Exception) -> str | None:
    """A path that cannot be used or memory that is not there, as one line; None for any other error."""
    if isinstance(error, PermissionError):
        return f"{error.filename}: permission denied; change its permissions or give another path"
    if isinstance(error, OSError):
        return error.filename and f"{str(error.filename)[:200]}: {error.strerror}; give another path"
    return memory_problem(error)


def _print_warning(message: Warning | str, category: type[Warning], *where: Any, **more: Any) -> None:
    """Print a warning of dragfl as one line, any other as Python does."""
    own = issubclass(category, DragflWarning)
    text = f"warning: {message}\n" if own else warnings.formatwarning(message, category, *where[:2])
    sys.stderr.write(text)
