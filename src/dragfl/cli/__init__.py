"""The command line: one thin file per command. Every command calls a public function of the library."""

from __future__ import annotations

import argparse
import os
import sys
import warnings
from typing import Any, NoReturn

from dragfl import __version__
from dragfl.errors import DragflError, DragflWarning, SpecError

DESCRIPTION = "Federated learning under non-IID data and attacks: DRAG, BR-DRAG, baselines."
EPILOG = """\
Exit codes: 0 success, 1 a run raised an error, 2 usage or spec error, 3 data error,
            4 diverged, 5 interrupted (resumable), 6 damaged run

`dragfl COMMAND --help` shows the options of a command."""
RESUMABLE = ("run", "resume", "sweep", "arena", "reproduce", "demo")


class Parser(argparse.ArgumentParser):
    """A parser whose usage errors are one line, like all others."""

    def error(self, message: str) -> NoReturn:
        command = self.prog.removeprefix("dragfl").strip()
        raise SpecError(
            f"{command}: {message}; see `{self.prog} --help`" if command else f"{message}; see `dragfl --help`"
        )


def parser() -> argparse.ArgumentParser:
    from dragfl.cli import (
        arena,
        check,
        data,
        demo,
        deploy,
        doctor,
        list_parts,
        migrate,
        report,
        reproduce,
        resume,
        run,
        sweep,
    )

    as_written = argparse.RawDescriptionHelpFormatter  # keeps the line breaks of the epilog
    top = Parser(prog="dragfl", description=DESCRIPTION, epilog=EPILOG, formatter_class=as_written)
    top.add_argument("-V", "--version", action="version", version=f"dragfl {__version__}")
    commands = top.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for command in (
        demo,
        run,
        sweep,
        arena,
        reproduce,
        resume,
        report,
        data,
        list_parts,
        check,
        deploy,
        migrate,
        doctor,
    ):
        command.add(commands)
    return top


def _parse(argv: list[str] | None) -> argparse.Namespace:
    top = parser()
    args, rest = top.parse_known_args(argv)
    if rest:  # argparse does not collect key=value words that come after options
        words = [word for word in rest if not word.startswith("-") and hasattr(args, "words")]
        if words != rest:
            top.error(f"unrecognized arguments: {' '.join(word for word in rest if word not in words)}")
        args.words += words
    return args


def main(argv: list[str] | None = None) -> int:
    """Run one command; returns the exit code."""
    args = None
    try:
        args = _parse(argv)
        with warnings.catch_warnings():
            warnings.simplefilter("once", DragflWarning)
            warnings.showwarning = _print_warning
            code = int(args.run(args))
        sys.stdout.flush()
        return code
    except DragflError as error:
        print(f"dragfl: {error}", file=sys.stderr)
        return error.exit_code
    except PermissionError as error:
        print(
            f"dragfl: {error.filename}: permission denied; change its permissions or give another path", file=sys.stderr
        )
        return SpecError.exit_code
    except KeyboardInterrupt:
        print("dragfl: stopped immediately; a run can be resumed from its last checkpoint", file=sys.stderr)
        return 5
    except (BrokenPipeError, SystemExit) as error:  # the output pipe was closed, as in `dragfl list | head`
        if isinstance(error, SystemExit) and error.code != 1:  # rich exits with 1 on a closed pipe
            raise
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # so that the flush at exit cannot fail
        return 5 if args is not None and args.run.__module__.rpartition(".")[2] in RESUMABLE else 0


def _print_warning(message: Warning | str, category: type[Warning], *where: Any, **more: Any) -> None:
    """Print a warning of dragfl as one line, any other as Python does."""
    own = issubclass(category, DragflWarning)
    text = f"warning: {message}\n" if own else warnings.formatwarning(message, category, *where[:2])
    sys.stderr.write(text)
