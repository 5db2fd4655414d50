"""A crash before every file operation of a run, and a second crash during the resume. Deterministic."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from tests.conftest import TIMEOUT_S
from tests.runs import crash


def test_a_crash_before_every_file_operation(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, crash.__file__], cwd=tmp_path, capture_output=True, text=True, timeout=TIMEOUT_S
    )
    assert done.returncode == 0, done.stderr + done.stdout
    found = re.fullmatch(r"operations=(\d+) crashes=(\d+)\n", done.stdout)
    assert found, done.stdout
    operations, crashes = int(found[1]), int(found[2])
    assert operations > 25, "opens, fsyncs and renames of two checkpoints, three logs, a model and a result"
    assert crashes > operations
