"""The config package can be imported, and a spec resolved, without torch and without the engine."""

from __future__ import annotations

import subprocess
import sys

CODE = """
import sys
from dragfl.config import compare, migrate, spec
spec.load({"algorithm": {"name": "br_drag"}, "root": {}, "attack": {"name": "alie", "attackers": 1}}).to_toml()
heavy = ("torch", "ray", "dragfl.engine", "dragfl.build", "dragfl.runs")
print(sorted(name for name in sys.modules if name in heavy or name.startswith("dragfl.engine.")))
"""


def test_neither_torch_nor_engine() -> None:
    done = subprocess.run([sys.executable, "-c", CODE], capture_output=True, text=True, check=False)
    assert (done.stdout.strip(), done.returncode) == ("[]", 0), done.stderr
