"""Text files: speakers and chapters, windows by hand, and every file that cannot be used."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dragfl import data
from dragfl.cli import main
from dragfl.data.dataset import Dataset
from dragfl.data.partitions import ByGroup, partition_dataset
from dragfl.data.sources import play, text
from dragfl.data.sources.text import TextSettings, from_text, parse_settings, split_sections
from dragfl.errors import DataError, SpecError
from dragfl.rng import rng


def decode(dataset: Dataset, codes: list[int]) -> str:
    spelled = {"space": " ", "newline": "\n"}
    return "".join(spelled.get(dataset.class_names[code], dataset.class_names[code]) for code in codes)


def test_windows_by_hand(tmp_path: Path) -> None:
    """ANN says "abcdefgh" and a newline, nine characters: the last round(0.4 * 9) = 4, "fgh\\n", are test data.

    Windows of 2 with stride 2 from "abcde": ab->c, cd->e; from "fgh\\n": fg->h. BEN says "xy", too short for a window
    of training data, and is left out. The alphabet has all characters of the text.
    """
    path = tmp_path / "two.txt"
    path.write_text("ANN.\nabcdefgh\n\nBEN.\nxy\n")
    dataset = data.load(f"text:{path}?window=2&stride=2&test=0.4")
    assert dataset.class_names == ("newline", *"abcdefghxy") and dataset.classes == 11
    assert [decode(dataset, row) for row in dataset.x.tolist()] == ["ab", "cd"]
    assert decode(dataset, dataset.y.tolist()) == "ce"
    assert [decode(dataset, row) for row in dataset.test_x.tolist()] == ["fg"]
    assert decode(dataset, dataset.test_y.tolist()) == "h"
    assert dataset.groups is not None and dataset.groups.tolist() == [0, 0]
    assert dataset.group_names == ("ANN",) and dataset.name == "two"


def test_inputs_are_the_codes(tmp_path: Path) -> None:
    """An embedding needs codes: they are not scaled to [0, 1] as the bytes of images are."""
    dataset = data.load("play")
    assert dataset.inputs(dataset.x[:5]).long().equal(dataset.x[:5].long())


PLAY = """A Comedy, by nobody.

ACT I. Scene 1.

First Citizen:
Before we proceed any further:
hear me.

MR. SMITH.
Come here. Now.
NO
He said:
I. am.

HAMLET: To be, or not to be: that is it.

First Citizen:
Speak.
"""


def test_speakers() -> None:
    """Title and act are left out; `Come here. Now.`, `NO` and `He said:` are speech, not headings."""
    assert text.find_speakers(PLAY.splitlines()) == {
        "FIRST CITIZEN": ["Before we proceed any further:", "hear me.", "Speak."],
        "MR. SMITH": ["Come here. Now.", "NO", "He said:", "I. am."],
        "HAMLET": ["To be, or not to be: that is it."],
    }


@pytest.mark.parametrize(
    ("line", "name"),
    [
        ("ROMEO.", "ROMEO"),
        ("Lady  Macbeth:", "LADY MACBETH"),
        ("ÉMILE:", "ÉMILE"),
        ("JEAN-LUC O’NEIL.", "JEAN-LUC O’NEIL"),
        ("哈姆雷特：", "哈姆雷特"),
        ("GHOST: Mark me.", "GHOST"),
        ("Ghost: Mark me.", None),
        ("IV.", None),
        ("I.", None),
        ("12:", None),
        (":", None),
        ("Enough.", None),
        ("A " * 30 + ":", None),
        ("SCENE II.", None),
    ],
)
def test_headings(line: str, name: str | None) -> None:
    assert list(text.find_speakers([line, "speech"])) == ([name] if name else [])


def test_chapters() -> None:
    lines = [
        "preface",
        "CHAPTER I",
        "one",
        "",
        "two",
        "Chapter 2. The end",
        "three",
        "chapter 2",
        "four",
        "# Notes",
        " ",
    ]
    assert text.find_chapters(lines) == {
        "CHAPTER I": ["one", "", "two"],
        "Chapter 2": ["three"],
        "chapter 2": ["four"],
    }
    twice = text.find_chapters(["ACT I", "a", "ACT I", "b", "ACT I", "c", "ACT IV", "d"])
    assert list(twice) == ["ACT I", "ACT I (2)", "ACT I (3)", "ACT IV"]


def test_which_split() -> None:
    """By speaker if there are two of them, else by chapter, else the whole text."""
    novel = "CHAPTER I\nOne.\nCHAPTER II\nTwo.\n"
    assert list(split_sections(PLAY, "auto", "f")) == ["FIRST CITIZEN", "MR. SMITH", "HAMLET"]
    assert list(split_sections(novel, "auto", "f")) == ["CHAPTER I", "CHAPTER II"]
    assert list(split_sections("ANN.\nOnly me.", "auto", "f")) == ["all"]
    assert list(split_sections("ANN.\nOnly me.", "speaker", "f")) == ["ANN"]
    assert list(split_sections(PLAY, "chapter", "f")) == ["ACT I"]
    with pytest.raises(DataError, match=r"f: by=speaker, but no line is a heading such as `NAME:`"):
        split_sections(novel, "speaker", "f")
    with pytest.raises(DataError, match="by=chapter, but no line is a heading such as `CHAPTER I`"):
        split_sections("ANN.\nx", "chapter", "f")


@settings(max_examples=40)
@given(st.text(min_size=1, max_size=100), st.integers(1, 6), st.integers(1, 4), st.floats(0.1, 0.9))
def test_no_training_window_reaches_into_the_test_part(body: str, window: int, stride: int, test: float) -> None:
    """Every window is a piece of its part followed by its label, whatever the text holds."""
    codes = text.encode(body, text.find_alphabet(body))
    cut = len(codes) - round(test * len(codes))
    for part in (codes[:cut], codes[cut:]):
        windows = text.make_windows(part, TextSettings(window, stride, test))
        assert len(windows) == len(range(0, len(part) - window, stride))
        for i, row in enumerate(windows):
            assert row.tolist() == part[i * stride : i * stride + window + 1].tolist()


def test_more_characters_than_a_byte() -> None:
    """300 characters: the 255 most frequent have a code, the others share one."""
    rare, frequent = [chr(0x4E00 + i) for i in range(45)], [chr(0x5000 + i) for i in range(255)]
    alphabet = text.find_alphabet("".join(frequent) * 2 + "".join(rare))
    assert len(alphabet) == 256 and set(alphabet) == {*frequent, text.OTHER}
    codes = text.encode(rare[0] + frequent[0] + rare[44], alphabet)
    assert codes[0] == codes[2] == alphabet.index(text.OTHER) != codes[1]


def test_unicode_is_composed_and_the_mark_removed(tmp_path: Path) -> None:
    path = tmp_path / "e.txt"
    path.write_bytes(b"\xef\xbb\xbf" + ("ANN:\r\n" + "e\u0301" * 30 + "\r\n").encode())
    assert text.read_text(path) == "ANN:\n" + "é" * 30 + "\n"


def test_natural_clients() -> None:
    """With as many clients as speakers, client m is the m-th speaker."""
    dataset = from_text(play.generate_play(4, 10), TextSettings(), "play", "play")
    split = partition_dataset(dataset, ByGroup(), 4, rng(0, "partition"))
    assert dataset.groups is not None
    for client in range(4):
        assert set(dataset.groups[split.samples_of(client)].tolist()) == {client}
    with pytest.raises(DataError, match=r"5 clients but only 4 groups; set clients\.total to 4"):
        partition_dataset(dataset, ByGroup(), 5, rng(0, "partition"))


def test_the_play_is_always_the_same() -> None:
    assert play.generate_play() == play.generate_play()
    assert play.generate_play(3, 2, seed=1) != play.generate_play(3, 2, seed=2)
    beginning = "HECTOR.\nWhat ho! Iris, the fever must cure with the old syringe.\nI mix the syringe"
    assert play.generate_play().startswith(beginning)
    dataset = data.load("play")
    about = data.DATASETS["play"]
    assert f"{len(dataset.y):,} + {len(dataset.test_y):,} windows of {dataset.shape[0]}" in about
    assert f"{dataset.classes} classes, {len(dataset.group_names)} speakers" in about


def test_speakers_of_the_play_differ() -> None:
    """Each has words that others never use, and sizes differ."""
    sections = text.find_speakers(play.generate_play().splitlines())
    assert len(sections) == 20
    words = [set(" ".join(lines).split()) for lines in sections.values()]
    overlap = [len(a & b) / len(a | b) for i, a in enumerate(words) for b in words[:i]]
    assert max(overlap) < 0.8 and np.mean(overlap) < 0.4
    assert len({len(lines) for lines in sections.values()}) > 5
    assert len(text.find_speakers(play.generate_play(60, 1).splitlines())) == 60, "names are different"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "the file is empty"),
        (b" \n\n", "the file is empty"),
        (b"\x89PNG\r\n\xff\xfe", r"not UTF-8 text \(byte 0\)"),
        (b"abc\0def", "a binary file"),
        (b"short", r"no part of the text has 21 characters of training and of test data \(the longest has 6\)"),
        (b"ANN.\nhello\nBEN.\nhi\n", "the longest has 6"),
        (b"ANN.\n" + b"x" * 60 + b"\nBEN.\nhi\n", "of test data"),
    ],
)
def test_unsuitable_files(content: bytes, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "f.txt"
    path.write_bytes(content)
    with pytest.raises(DataError, match=message):
        data.load(f"text:{path}")
    assert main(["data", "show", f"text:{path}"]) == 3
    assert str(path) in capsys.readouterr().err


def test_missing_files(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"none\.txt: cannot be read \(No such file or directory\); give the path"):
        data.load(f"text:{tmp_path / 'none.txt'}")
    with pytest.raises(DataError, match=r"cannot be read \(Is a directory\)"):
        data.load(f"text:{tmp_path}")


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ("windw=3", "unknown setting 'windw' of a text; did you mean 'window'"),
        ("", "unknown setting ''"),
        ("window=x", "window=x of a text; give a number"),
        ("window=2.5", "give a number"),
        ("window=0", "window=0, stride=3, test=0.2"),
        ("stride=-1", "give window and stride of at least 1"),
        ("test=nan", r"test in \(0, 1\)"),
        ("test=1", r"test in \(0, 1\)"),
        ("by=word", "by=word of a text; give speaker, chapter or auto"),
    ],
)
def test_wrong_settings(query: str, message: str) -> None:
    with pytest.raises(SpecError, match=message):
        parse_settings(query)


def test_commands(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Write a play, show it with its speakers, run it."""
    monkeypatch.setenv("COLUMNS", "120")
    path = tmp_path / "play.txt"
    assert main(["data", "play", "--out", str(path), "--speakers", "3", "--speeches", "12"]) == 0
    assert path.read_text() == play.generate_play(3, 12)
    assert main(["data", "play", "--out", str(path)]) == 2
    assert main(["data", "play", "--out", str(tmp_path / "no" / "play.txt")]) == 3
    assert main(["data", "play", "--speakers", "0", "--out", str(tmp_path / "x")]) == 2
    capsys.readouterr()
    shown = ["data", "show", f"text:{path}?window=10", "--partition", "by_group", "--clients", "3"]
    assert main([*shown, "--out", str(tmp_path)]) == 0
    out = capsys.readouterr().out
    assert "space" in out and all(name in out for name in ("ALDA", "BRUNO", "CELIA"))
    assert [file.name for file in tmp_path.glob("*.png")] == ["data-play-by_group.png"]
    assert main(["data", "get", f"text:{path}"]) == 0
    assert main(["data", "show", "play", "--clients", "2", "--no-figures"]) == 0
    assert "17 more" in capsys.readouterr().out
