"""Next-character prediction on a text file of the user: `text:PATH` or `text:PATH?window=40&stride=1`.

A sample is a window of characters and the character that follows it. The text is split by speaker (a heading `NAME:` or
`NAME.`, as in plays) or by chapter (`CHAPTER I`, `ACT I`, `# Title`). Each speaker or chapter is a group, for the
partition `by_group`. The last part of every group is test data, and no training window reaches into it.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray

from dragfl.data.dataset import Dataset
from dragfl.errors import DataError, SpecError, nearest

CODES = 256  # a character is stored as a byte; of more characters, the rarest share one code
OTHER = "\N{REPLACEMENT CHARACTER}"
PART = r"(?:chapter|act|scene|book|part|canto|letter)\s+[\divxlc]+"
CHAPTER = re.compile(rf"^(?:#{{1,6}}\s+(?P<title>\S.*)|(?P<part>{PART})\b.*)$", re.IGNORECASE)
SPEAKER = re.compile(r"^(?P<name>[^\W\d_][\w '’.-]{0,39}?)(?:(?P<colon>[:：])\s*(?P<speech>.*)|\.)$")
NAMES = {" ": "space", "\n": "newline", "\t": "tab", OTHER: "other"}

Sections = dict[str, list[str]]  # heading -> lines, in order of first appearance


@dataclass(frozen=True)
class TextSettings:
    """The keys after `?`."""

    window: int = 20  # characters of an input
    stride: int = 3  # characters from one window to the next
    test: float = 0.2  # the last part of every group that is test data
    by: Literal["auto", "speaker", "chapter"] = "auto"  # auto: by speaker if there are two, else by chapter


def load(where: str) -> Dataset:
    """Load `PATH` or `PATH?key=value&key=value`."""
    name, mark, query = where.rpartition("?") if "?" in where else (where, "", "")
    settings, path = parse_settings(query) if mark else TextSettings(), Path(name).expanduser()
    return from_text(read_text(path), settings, path.stem, f"text:{name}")


def parse_settings(query: str) -> TextSettings:
    """Parse `window=40&stride=1`.

    >>> parse_settings("window=40&by=chapter")
    TextSettings(window=40, stride=3, test=0.2, by='chapter')
    """
    values: dict[str, int | float | str] = {}
    kinds: dict[str, Callable[[str], int | float | str]] = {"window": int, "stride": int, "test": float, "by": str}
    for word in query.split("&"):
        key, _, text = word.partition("=")
        if key not in kinds:
            raise SpecError(f"data.dataset: unknown setting '{key}' of a text{nearest(key, kinds)}")
        try:
            values[key] = kinds[key](text)
        except ValueError:
            raise SpecError(f"data.dataset: {key}={text} of a text; give a number") from None
    settings = TextSettings(**values)  # type: ignore[arg-type]
    if settings.window < 1 or settings.stride < 1 or not 0 < settings.test < 1:
        given = f"window={settings.window}, stride={settings.stride}, test={settings.test:g}"
        raise SpecError(f"data.dataset: {given} of a text; give window and stride of at least 1 and test in (0, 1)")
    if settings.by not in ("auto", "speaker", "chapter"):
        raise SpecError(f"data.dataset: by={settings.by} of a text; give speaker, chapter or auto")
    return settings


def read_text(path: Path) -> str:
    """The text of a UTF-8 file, with composed characters and plain line ends."""
    try:
        text = path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise DataError(f"{path}: not UTF-8 text (byte {error.start}); save the file as UTF-8") from None
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror}); give the path of a text file") from None
    if "\0" in text:
        raise DataError(f"{path}: a binary file; give a text file")
    if not text.strip():
        raise DataError(f"{path}: the file is empty; give a text of some thousand characters")
    return unicodedata.normalize("NFC", text)


def from_text(text: str, settings: TextSettings, name: str, source: str) -> Dataset:
    """Build the dataset; a group without a single training window is left out."""
    sections = split_sections(text, settings.by, source)
    bodies = {heading: "\n".join(lines).strip() + "\n" for heading, lines in sections.items()}
    alphabet = find_alphabet("".join(bodies.values()))
    parts: list[tuple[NDArray[np.uint8], NDArray[np.uint8]]] = []
    names, sizes = [], []
    for heading, body in bodies.items():
        codes = encode(body, alphabet)
        cut = len(codes) - round(settings.test * len(codes))
        train, test = (make_windows(part, settings) for part in (codes[:cut], codes[cut:]))
        if len(train):
            parts.append((train, test))
            names.append(heading)
            sizes.append(len(train))
    if not sum(len(test) for _, test in parts):
        least = f"{settings.window + 1} characters of training and of test data"
        longest = max(len(body) for body in bodies.values())
        raise DataError(f"{source}: no part of the text has {least} (the longest has {longest}); lower window")
    rows, test_rows = (torch.from_numpy(np.concatenate(side)) for side in zip(*parts, strict=True))
    return Dataset(
        name,
        rows[:, :-1].contiguous(),
        rows[:, -1].long(),
        test_rows[:, :-1].contiguous(),
        test_rows[:, -1].long(),
        classes=len(alphabet),
        scale=1.0,  # inputs are the codes themselves: the first layer is an embedding
        groups=torch.repeat_interleave(torch.arange(len(sizes)), torch.tensor(sizes)),
        group_names=tuple(names),
        class_names=tuple(NAMES.get(character, character) for character in alphabet),
    )


def split_sections(text: str, by: str, source: str) -> Sections:
    """The lines of every speaker or chapter; the whole text is one section if it has no headings."""
    speakers, chapters = find_speakers(text.splitlines()), find_chapters(text.splitlines())
    if by == "auto":
        return next((found for found in (speakers, chapters) if len(found) > 1), {"all": text.splitlines()})
    found = speakers if by == "speaker" else chapters
    if not found:
        example = "`NAME:` or `NAME.`" if by == "speaker" else "`CHAPTER I`, `ACT I` or `# Title`"
        raise DataError(f"{source}: by={by}, but no line is a heading such as {example}; add headings or leave out by")
    return found


def find_speakers(lines: list[str]) -> Sections:
    """Speeches by name. What stands before the first name, and headings of acts, are left out."""
    found: Sections = {}
    speaker = None
    for line in lines:
        match = SPEAKER.match(line.strip())
        if CHAPTER.match(line.strip()):
            speaker = None
        elif match and _is_heading(match["name"], match["colon"], match["speech"]):
            speaker = " ".join(match["name"].split()).upper()
            found.setdefault(speaker, []).extend([match["speech"]] if match["speech"] else [])
        elif speaker is not None and line.strip():
            found[speaker].append(line.strip())
    return {name: speech for name, speech in found.items() if speech}


def _is_heading(name: str, colon: str | None, speech: str | None) -> bool:
    """`NAME.`, `NAME:`, `Name:` alone on a line, or `NAME: speech`; `Come here.` and `He said:` are none."""
    if colon and not speech and (name.istitle() or name.upper() == name.lower()):
        return True  # the second: a script without capitals
    return name.isupper() and len(name) > 1 and not re.fullmatch("[IVXLC]+", name)


def find_chapters(lines: list[str]) -> Sections:
    """Lines by chapter. Chapters of the same title, as in several books, are told apart by a number."""
    found: Sections = {}
    chapter = None
    for line in lines:
        match = CHAPTER.match(line.strip())
        if match:
            title = " ".join((match["title"] or match["part"]).split())
            copies = sum(other == title or other.startswith(f"{title} (") for other in found)
            chapter = f"{title} ({copies + 1})" if copies else title
            found[chapter] = []
        elif chapter is not None:
            found[chapter].append(line.rstrip())
    return {title: body for title, body in found.items() if any(map(str.strip, body))}


def find_alphabet(text: str) -> list[str]:
    """The characters in order; if there are more than a byte holds, the most frequent and one for all others."""
    counts = Counter(text)
    if len(counts) <= CODES:
        return sorted(counts)
    frequent = sorted(counts, key=lambda character: (-counts[character], character))[: CODES - 1]
    return sorted({*frequent, OTHER})


def encode(text: str, alphabet: list[str]) -> NDArray[np.uint8]:
    """The position of every character in the alphabet."""
    code = {character: i for i, character in enumerate(alphabet)}
    return np.array([code[c] if c in code else code[OTHER] for c in text], np.uint8)


def make_windows(codes: NDArray[np.uint8], settings: TextSettings) -> NDArray[np.uint8]:
    """(n, window + 1): inputs, and in the last column the character that follows."""
    length = settings.window + 1
    if len(codes) < length:
        return np.empty((0, length), np.uint8)
    return np.lib.stride_tricks.sliding_window_view(codes, length)[:: settings.stride].copy()
