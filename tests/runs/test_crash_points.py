"""The deterministic half of kill -9: a crash before every single file operation of a run, and a second one on top."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from tests.runs import crash


def test_a_crash_before_every_file_operation(tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, crash.__file__], cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr + done.stdout
    found = re.fullmatch(r"operations=(\d+) crashes=(\d+)\n", done.stdout)
    assert found, done.stdout
    operations, crashes = int(found[1]), int(found[2])
    assert operations > 25, "opens, fsyncs and renames of two checkpoints, three logs, a model and a result"
    assert crashes > operations
