"""Any text as LaTeX that pdflatex compiles without further packages."""

from __future__ import annotations

import re
import unicodedata

GREEK = {
    "alpha", "beta", "gamma", "delta", "epsilon", "zeta", "eta", "theta", "iota", "kappa", "lambda", "mu", "nu", "xi",
    "pi", "rho", "sigma", "tau", "upsilon", "phi", "chi", "psi", "omega",
}  # fmt: skip
SAME_IN_LATIN = dict(zip("ΑΒΕΖΗΙΚΜΝΟΡΤΧο", "ABEZHIKMNOPTXo", strict=True))  # Greek letters that look the same
SYMBOLS = {
    "\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}",
    "<": r"$<$", ">": r"$>$", "|": r"$|$", '"': "''", "⁄": "/",
    **{c: "\\" + c for c in "&%$#_{}"}, **{c: f"{{{c}}}" for c in "[*"},  # \\ reads these two as its options
    "·": r"$\cdot$", "×": r"$\times$", "±": r"$\pm$", "≤": r"$\leq$", "≥": r"$\geq$", "≠": r"$\neq$", "≈": r"$\approx$",
    "∞": r"$\infty$", "√": r"$\surd$", "→": r"$\rightarrow$", "←": r"$\leftarrow$", "−": "$-$", "∈": r"$\in$",
    "∑": r"$\sum$", "‖": r"$\|$", "°": r"$^\circ$", "²": "$^2$", "³": "$^3$", "¹": "$^1$", "µ": r"$\mu$",
    "–": "--", "—": "---", "…": r"\ldots{}", "‘": "`", "’": "'", "“": "``", "”": "''", "\u00a0": "~",
    "ß": r"\ss{}", "ø": r"\o{}", "Ø": r"\O{}", "æ": r"\ae{}", "Æ": r"\AE{}", "œ": r"\oe{}", "Œ": r"\OE{}",
    "ł": r"\l{}", "Ł": r"\L{}", "ı": r"\i{}", "ϵ": r"$\epsilon$", "ϕ": r"$\phi$", "ϑ": r"$\vartheta$",
}  # fmt: skip
ACCENTS = {
    "\u0300": "`", "\u0301": "'", "\u0302": "^", "\u0303": "~", "\u0304": "=", "\u0306": "u", "\u0307": ".",
    "\u0308": '"', "\u030a": "r", "\u030b": "H", "\u030c": "v", "\u0327": "c",
}  # fmt: skip


def escape(text: str) -> str:
    """Text that pdflatex compiles: special characters escaped, Greek letters and symbols in math, accents as commands.

    A character without an equivalent is written as its code point: U+4E2D.

    >>> escape("50 % of α_0")
    '50 \\\\% of $\\\\alpha$\\\\_0'
    """
    return "".join(map(_escape_character, unicodedata.normalize("NFC", text)))


def _escape_character(c: str) -> str:
    if c in SYMBOLS:
        return SYMBOLS[c]
    if c.isascii():
        return c if c.isprintable() else " "
    if found := re.fullmatch(r"GREEK (SMALL|CAPITAL) LETTER (FINAL )?(\w+)", unicodedata.name(c, "")):
        return _greek(c, found[3].lower().replace("lamda", "lambda"), found[1] == "CAPITAL", bool(found[2]))
    decomposed = unicodedata.normalize("NFKD", c)
    base, marks = decomposed[0], decomposed[1:]
    if marks and base.isascii() and all(mark in ACCENTS for mark in marks):
        text = {"i": r"\i", "j": r"\j"}.get(base, base)
        for mark in marks:
            text = f"\\{ACCENTS[mark]}{{{text}}}"
        return text
    plain = unicodedata.normalize("NFKC", c)
    return escape(plain) if plain != c else f"U+{ord(c):04X}"


def _greek(c: str, name: str, capital: bool, final: bool) -> str:
    if c in SAME_IN_LATIN:
        return SAME_IN_LATIN[c]
    if name not in GREEK:  # with an accent
        return f"U+{ord(c):04X}"
    return f"$\\{'var' if final else ''}{name.capitalize() if capital else name}$"
