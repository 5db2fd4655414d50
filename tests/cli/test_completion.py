"""Completion scripts, run by the shells that are installed."""

from __future__ import annotations

import shutil
import subprocess

import pytest

from dragfl.cli import main

Capture = pytest.CaptureFixture[str]
DRIVER = """
complete_words() { COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _dragfl; echo "${COMPREPLY[*]}"; }
"""


def script(shell: str, capsys: Capture) -> str:
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed: apt-get install {shell}")
    assert main(["completion", shell]) == 0
    return capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("dragfl r", "run reproduce resume report"),
        ("dragfl run --dr", "--dry-run"),
        ("dragfl run a.toml clients.l", "clients.local_epochs= clients.local_steps= clients.lr="),
        ("dragfl run a.toml --quiet algorithm.nam", "algorithm.name="),
        ("dragfl run ''", ""),  # names of files
        ("dragfl data ''", "list get show play"),
        ("dragfl data get --q", "--quiet"),
        ("dragfl deploy add", "add-node"),
        ("dragfl completion ''", "bash zsh fish"),
        ("dragfl check mine:Rule clients.l", ""),
    ],
)
def test_bash(words: str, expected: str, capsys: Capture) -> None:
    text = f"{script('bash', capsys)}{DRIVER}complete_words {words}\n"
    done = subprocess.run(["bash", "--norc", "-c", text], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == expected and done.stderr == ""


def test_fish(capsys: Capture) -> None:
    text = script("fish", capsys) + "complete -C 'dragfl run --dr'\ncomplete -C 'dragfl data ge'\n"
    done = subprocess.run(["fish", "-c", text], capture_output=True, text=True, check=True)
    assert [line.split("\t")[0] for line in done.stdout.splitlines()] == ["--dry-run", "get"]


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_syntax_is_valid(shell: str, capsys: Capture) -> None:
    text = script(shell, capsys)
    done = subprocess.run([shell, "-n"], input=text, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
