"""`dragfl deploy` as it is typed: what is printed, the exit codes, JSON, and flwr that is missing."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from dragfl.cli import main
from tests.conftest import python
from tests.flower.deploy.installed import BIN

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of packages that flwr imports


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", str(BIN), prepend=":")


def test_init_check_break_check(capsys: pytest.CaptureFixture[str]) -> None:
    Path("s.toml").write_text('[clients]\ntotal = 3\n[algorithm]\nname = "scaffold"\n[model]\nname = "logistic"\n')
    assert main(["deploy", "init", "d", "--spec", "s.toml", "--host", "fl.invalid", "--host", "192.0.2.99"]) == 0
    printed = capsys.readouterr().out
    assert "  nodes         one folder for each node" in printed and printed.endswith(
        "next: " + str(Path("d/README.md").resolve()) + "\n"
    )

    Path("d/deployment.toml").write_text(Path("d/deployment.toml").read_text().replace('"192.0.2.99",', ""))
    assert main(["deploy", "check", "d"]) == 0
    *lines, last = capsys.readouterr().out.splitlines()
    assert any(line.startswith("  OK           state-dir") for line in lines)
    assert any(line.startswith("  not checked  control API") for line in lines)
    assert last == f"{len(lines) - 4} OK, 0 FAIL, 4 not checked"

    Path("d/nodes/node1/node1").chmod(0o644)
    assert main(["deploy", "check", "d"]) == 2
    assert re.search(r"^  FAIL         private files +others can read them; chmod 600 ", capsys.readouterr().out, re.M)
    assert main(["deploy", "check", "d", "--json"]) == 2
    answer = json.loads(capsys.readouterr().out)
    assert answer["passed"] is False
    assert [row for row in answer["findings"] if row["status"] == "fail"] == [
        {"name": "private files", "status": "fail", "text": "others can read them; chmod 600 nodes/node1/node1"}
    ]


def test_insecure_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["deploy", "init", "d", "--insecure", "--nodes", "1"]) == 0
    assert "insecure: no TLS and no node keys; for this machine only" in capsys.readouterr().out
    assert main(["deploy", "init", "e", "--insecure", "--host", "fl.example.org"]) == 2
    assert "anyone who reaches it can run code on every node" in capsys.readouterr().err


def test_a_node_and_a_new_certificate(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["deploy", "init", "d", "--nodes", "2"]) == 0
    assert main(["deploy", "add-node", "d", "a"]) == 2
    assert "all 2 client numbers of the spec have a node" in capsys.readouterr().err
    spec = Path("d/app/dragfl_app/spec.toml")
    spec.write_text(spec.read_text().replace("total = 2", "total = 3"))
    assert main(["deploy", "add-node", "d", "a"]) == 0
    assert Path("d/nodes/a/a.pub").exists()
    assert main(["deploy", "renew", "d", "--host", "fl.example.org"]) == 0
    assert "server.pem; install it and restart as README.md says" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["init"], "deploy init: the following arguments are required: DIR"),
        (["init", "d", "--spec", "nowhere.toml"], "nowhere.toml: no such file"),
        (["init", "d", "--port", "0"], "port: 0; give a number from 1"),
        (["init", "d", "--host", "a b"], "host 'a b': neither a host name nor an IP address"),
        (["init", "."], ".: exists and is not empty"),
        (["check", "nowhere"], "no deployment, it has no deployment.toml; write one with: dragfl deploy init DIR"),
    ],
)
def test_mistakes(words: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    Path("file").touch()
    assert main(["deploy", *words]) == 2
    assert message in capsys.readouterr().err
    assert [path.name for path in Path().iterdir()] == ["file"]


def test_without_flwr_the_extra_is_named(tmp_path: Path) -> None:
    code = """
import importlib.metadata, sys
real = importlib.metadata.version
def version(name):
    if name == "flwr":
        raise importlib.metadata.PackageNotFoundError(name)
    return real(name)
importlib.metadata.version = version
from dragfl.cli import main
sys.stderr = sys.stdout
print(main(["deploy", "init", "d"]))
"""
    assert python(code, tmp_path).splitlines() == [
        "dragfl: dragfl.flower: flwr is not installed; install it with: pip install 'dragfl[flower]'",
        "2",
    ]


def test_the_help_imports_neither_flwr_nor_torch(tmp_path: Path) -> None:
    code = "import sys; from dragfl.cli import main\ntry: main(['deploy', 'init', '--help'])\nexcept SystemExit: pass\n"
    code += "print([name for name in ('flwr', 'torch', 'cryptography') if name in sys.modules])"
    assert python(code, tmp_path).splitlines()[-1] == "[]"
