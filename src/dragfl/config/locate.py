"""Where in a file or on the command line the key of an error message stands: `drift.toml:12: clients.lr: ...`."""

from __future__ import annotations

import re
import sys
import tomllib
import traceback
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from dragfl.errors import (
    DataError,
    DragflError,
    NotEnoughMemory,
    NotFinite,
    PartError,
    SpecError,
    UnsafeSpec,
    memory_problem,
)
from dragfl.own_code import OBJECT, PLAIN, name_of, one_line

HEADER = re.compile(r"\s*\[{1,2}\s*([^\[\]#=]+?)\s*\]{1,2}\s*(?:#.*)?")
SETTING = re.compile(r"\s*([\w.\-\"' ]+?)\s*=")
KEY = re.compile(r"(?!override\b)([A-Za-z_][\w-]*(?:\.[\w-]+)*)(?:\[\d+\](?:\.[\w-]+)*)?: ")


def line_of(text: str, path: str) -> int | None:
    """The line of a TOML text that sets this key, or else the closest table around it; lines count from 1.

    >>> line_of('rounds = 3\\n[clients]\\nlr = "fast"', "clients.lr")
    3
    """
    best, depth = None, 0
    for number, found in _keys(text):
        if (path + ".").startswith(found + ".") and found.count(".") + 1 > depth:
            best, depth = number, found.count(".") + 1
    return best


def _keys(text: str) -> Iterator[tuple[int, str]]:
    """(line, key path) of every table and every setting outside of multi-line strings."""
    table, inside = "", ""
    for number, line in enumerate(text.splitlines(), start=1):
        quotes = inside or next((q for q in ('"""', "'''") if q in line), "")
        starts_inside = bool(inside)
        if quotes and line.count(quotes) % 2:
            inside = "" if inside else quotes
        if starts_inside:
            continue
        if header := HEADER.fullmatch(line):
            table = _plain(header[1])
            yield number, table
        elif setting := SETTING.match(line):
            yield number, f"{table}.{_plain(setting[1])}".lstrip(".")


def _plain(key: str) -> str:
    return ".".join(part.strip(" \"'") for part in key.split("."))


@contextmanager
def with_key(tables: Mapping[str, Any]) -> Iterator[None]:
    """Name, in an error of the user's own part, the key of the spec that names the part.

    Any other exception becomes such an error if a line of a module that the spec names took part in it. An allocation
    that failed is `NotEnoughMemory`.
    """
    try:
        yield
    except DragflError as error:
        if not isinstance(error, PartError) or KEY.match(str(error)):
            raise
        named = [key for key, name in _own_names(tables) if name in str(error)]
        if not named:
            raise
        raise renewed(error, f"{max(named, key=len)}: {error}") from error.__cause__
    except Exception as error:
        if problem := memory_problem(error):
            raise NotEnoughMemory(problem) from error
        text = "".join(traceback.format_exception(error))  # with that of a worker process, a note
        keys = dict.fromkeys(key for key, name in _own_names(tables) if f'File "{_file_of(name)}"' in text)
        if not keys:
            raise
        raise PartError(f"{', '.join(keys)}: code of yours raised {one_line(error)}; see its traceback") from error


def _file_of(name: str) -> str | None:
    """The file of the module of `module:attr`."""
    return getattr(sys.modules.get(name.partition(":")[0]), "__file__", None)


def _own_names(value: Any, where: str = "") -> Iterator[tuple[str, str]]:
    """(key, name in messages) of every part in tables that is not built in."""
    if isinstance(value, Mapping):
        for key, inner in value.items():
            yield from _own_names(inner, where if key in ("name", "kind") else f"{where}.{key}".lstrip("."))
    elif isinstance(value, list | tuple):
        for inner in value:
            yield from _own_names(inner, where)
    elif isinstance(value, str):
        yield from ((where, part.removeprefix(OBJECT)) for part in value.split("+") if ":" in part)
    elif not isinstance(value, PLAIN):
        yield where, name_of(value)


def renewed(error: DragflError, message: str) -> DragflError:
    """An error of the same type with another message; its notes, as the traceback of a worker process, are kept."""
    kind = next(kind for kind in (NotFinite, PartError, DataError, UnsafeSpec, SpecError) if isinstance(error, kind))
    made = kind(message)
    for note in getattr(error, "__notes__", ()):
        made.add_note(note)
    return made


@contextmanager
def located(source: str | Path | Mapping[str, Any] | None, overrides: Iterable[str] = ()) -> Iterator[None]:
    """Name, in an error about a key, the override or the line of the file that sets it."""
    try:
        yield
    except (SpecError, DataError, PartError) as error:
        place = _place(str(error), source, overrides)
        if place is None:
            raise
        raise renewed(error, f"{place}: {error}") from error.__cause__


def _place(message: str, source: str | Path | Mapping[str, Any] | None, overrides: Iterable[str]) -> str | None:
    """`override 'clients.lr=fast'` or `drift.toml:12`; None if the message is about no key of either."""
    found = KEY.match(message)
    if found is None:
        return None
    for text in overrides:
        name = text.partition("=")[0].strip()
        if name and (f"{found[1]}.".startswith(f"{name}.") or f"{name}.".startswith(f"{found[1]}.")):
            return f"override {text!r}"
    if source is None or isinstance(source, Mapping):
        return None
    with suppress(OSError, ValueError):
        if line := line_of(Path(source).read_text(), found[1]):
            return f"{source}:{line}"
    return None


def not_toml(source: str | Path, text: str, error: tomllib.TOMLDecodeError) -> SpecError:
    """`x.toml:3:9: not valid TOML: invalid value: lr = fast; fix this line`"""
    what, _, where = str(error).partition(" (at ")
    numbers = [int(number) for number in re.findall(r"\d+", where)]
    lines = text.splitlines() or [""]
    line, column = numbers if len(numbers) == 2 else (len(lines), len(lines[-1]) + 1)
    shown = lines[min(line, len(lines)) - 1].strip()
    what = what[:1].lower() + what[1:]
    return SpecError(f"{source}:{line}:{column}: not valid TOML: {what}: {shown[:80]!r}; fix this line")
