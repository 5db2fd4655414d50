"""Run pytest while four other processes are busy: `python -m tests.loaded [arguments of pytest]`.

A busy process reads a pipe and ends when it closes: with this process, however this one ends.
"""

from __future__ import annotations

import signal
import subprocess
import sys

COUNT = 4
BUSY = """
import os, sys, threading
threading.Thread(target=lambda: (sys.stdin.read(), os._exit(0))).start()
while True: pass
"""


def main(arguments: list[str]) -> int:
    """The exit code of pytest."""
    command = [sys.executable, "-c", BUSY]  # in sessions of their own: Ctrl-C reaches them through their pipe
    busy = [subprocess.Popen(command, stdin=subprocess.PIPE, start_new_session=True) for _ in range(COUNT)]
    try:
        tests = subprocess.Popen([sys.executable, "-m", "pytest", *arguments])
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # pytest has it too, prints its summary and ends
        return tests.wait()
    finally:
        for process in busy:
            process.communicate()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
