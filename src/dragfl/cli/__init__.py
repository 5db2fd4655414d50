"""The command line: one file a command, thin; everything it does is a function call of the library."""

from __future__ import annotations

import argparse
import os
import sys

from dragfl import __version__
from dragfl.errors import DragflError

DESCRIPTION = "Federated learning on unlike data and among clients that may lie: DRAG, BR-DRAG and their rivals."
EPILOG = (
    "exit codes: 0 done, 2 usage or spec, 3 data, 4 diverged, 5 interrupted and resumable, 6 damaged run. "
    "`dragfl COMMAND --help` tells more."
)


def parser() -> argparse.ArgumentParser:
    from dragfl.cli import arena, data, demo, doctor, list_parts, report, reproduce, resume, run, sweep

    top = argparse.ArgumentParser(prog="dragfl", description=DESCRIPTION, epilog=EPILOG)
    top.add_argument("--version", action="version", version=f"dragfl {__version__}")
    commands = top.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for command in (demo, run, sweep, arena, reproduce, resume, report, data, list_parts, doctor):
        command.add(commands)
    return top


def main(argv: list[str] | None = None) -> int:
    """Run one command; the exit code is returned."""
    top = parser()
    args, rest = top.parse_known_args(argv)
    if rest:  # key=value words are welcome after options too, which argparse does not see by itself
        words = [word for word in rest if not word.startswith("-") and hasattr(args, "words")]
        if words != rest:
            top.error(f"unrecognized arguments: {' '.join(word for word in rest if word not in words)}")
        args.words += words
    try:
        code = int(args.run(args))
        sys.stdout.flush()
        return code
    except DragflError as error:
        print(f"dragfl: {error}", file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        print("dragfl: stopped at once; a run is resumable from its last checkpoint", file=sys.stderr)
        return 5
    except (BrokenPipeError, SystemExit) as error:  # the reader of our output has gone, as in `dragfl list | head`
        if isinstance(error, SystemExit) and error.code != 1:  # 1 is how rich tells it
            raise
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # nothing more can fail at the end
        resumable = ("run", "resume", "sweep", "arena", "reproduce", "demo")
        return 5 if args.run.__module__.rpartition(".")[2] in resumable else 0
