"""Findings in words: what was measured, over which seeds, and a sentence that explains the verdict."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from dragfl.reproduction import figure as panels
from dragfl.reproduction.claims import Part
from dragfl.reproduction.intervals import Span, middle
from dragfl.reproduction.summary import NUMBERS
from dragfl.reproduction.verdicts import Finding, Judged, Summaries, Verdict, target_of, value

SHARES = ("final", "best", "mean", "unrest")  # told in percent, and their differences in points
PARTS_OF_ONE = ("against", "reversed", "over_reference", "shortened", "skipped")
SIGNS = {"<": "< ", "<=": "≤ ", ">": "> ", ">=": "≥ ", "=": "= ", "within": "1 ± ", "apart": "≠ 0, by "}


@dataclass(frozen=True)
class Row:
    """A line of the verdict table."""

    claim: str
    says: str
    measured: str
    verdict: str
    because: str


def row(judged: Judged, summaries: Summaries) -> Row:
    measured = "; ".join(text for f in judged.findings if (text := finding_text(f, summaries)))
    claim = judged.claim
    return Row(claim.id, claim.says, measured or "—", judged.verdict.value, explanation(judged))


def finding_text(finding: Finding, summaries: Summaries) -> str:
    """`DRAG 390 (380–410), SCAFFOLD 520: ratio 0.75 (0.70–0.80)`"""
    if finding.verdict is Verdict.NOT_RUN:
        return ""
    part, spans = finding.part, list(finding.spans.values())
    whole = f"{name(part)} {over(part, spans)}"
    sides = "" if part.than is not None or part.how == "margin" else _sides(finding, summaries)
    return f"{sides}: {whole}" if sides else whole


def name(part: Part) -> str:
    if part.what:
        return part.what
    if part.how == "rank":
        return "rank"
    if part.how in ("ratio", "inverse"):
        return "ratio"
    if part.how == "difference":
        return "difference"
    label = panels.load(part.panel)[part.of].name
    words = {
        "against": "share of honest updates away from the root",
        "reversed": "share of attackers' updates reversed",
        "over_reference": "share of steps longer than the root update",
        "shortened": "share of updates shortened along the reference",
        "pairwise_cosine": "mean pairwise cosine",
        "skipped": "share of rounds in which the model stood still",
        "final": "final accuracy",
        "reference_norm": "length of the root update",
    }
    return f"{label}, {words.get(part.metric, part.metric)}"


def _sides(finding: Finding, summaries: Summaries) -> str:
    """The medians of the curves that are compared; of many rivals only the best."""
    part = finding.part
    if not part.versus:
        return ""
    summary, panel = summaries[part.panel], panels.load(part.panel)
    told = {}
    for curve in (part.of, *part.versus):
        told[curve] = middle([value(part, summary.curves[curve][seed], summary) for seed in finding.spans])
    sign = 1 if part.low_is_best else -1
    best = min(part.versus, key=lambda curve: (sign * told[curve].low, sign * min(told[curve].high, 1e12)))
    plain = _alone(part)
    return ", ".join(f"{panel[curve].label} {text(plain, told[curve])}" for curve in (part.of, best))


def _alone(part: Part) -> Part:
    """The part as if it was about a single value, for its unit."""
    from dataclasses import replace

    return replace(part, how="value", than=None)


def over(part: Part, spans: Sequence[Span]) -> str:
    """The median, and the range where there are several seeds."""
    told = text(part, middle(spans))
    if len(spans) == 1:
        return told
    low, high = min(spans, key=lambda s: (s.low, s.high)), max(spans, key=lambda s: (s.high, s.low))
    return told if low == high else f"{told} ({text(part, low)} to {text(part, high)})"


def text(part: Part, span: Span) -> str:
    """A number with its unit: `390`, `> 1000`, `at most 0.39`, `81.2 %`, `+3.1 points`, `unknown`."""
    low, high = span.low, span.high
    if part.how in ("ratio", "inverse", "rank") or part.than is not None:
        if span.known:
            return _plain(part, low)
        if math.isinf(high) and (low <= 0 or math.isinf(low)):
            return "unknown"
        if math.isinf(high):
            return f"at least {_plain(part, low)}"
        if low <= 0 and part.how != "rank" and part.than is None:
            return f"at most {_plain(part, high)}"
        return f"{_plain(part, low)} … {_plain(part, high)}"
    if math.isinf(low):
        return "not measured"
    if span.censored:
        return f"> {low:.0f}"
    return _plain(part, low)


def _plain(part: Part, number: float) -> str:
    if part.how == "rank" and part.than is None:
        return f"{number:g}"
    if part.how == "rank":
        return f"{number:+g}"
    if part.how in ("ratio", "inverse"):
        return f"{number:+.2f}" if part.than is not None else f"{number:.2f}"
    if part.metric in SHARES and part.how != "value":
        return f"{100 * number:+.1f} points"
    if part.metric in SHARES:
        return f"{100 * number:.1f} %"
    if part.metric in PARTS_OF_ONE:
        return f"{100 * number:.3g} %"
    return f"{number:.3f}" if part.metric == "pairwise_cosine" else f"{number:.4g}"


def wanted(part: Part, summaries: Summaries) -> str:
    """What the part asks for: `< 1`, `≥ +20 points`."""
    plain = f"{part.threshold:g}" if part.relation in ("within", "apart") else _plain(part, part.threshold)
    target = target_of(part, summaries[part.panel]) if part.panel in summaries and part.metric == "rounds" else None
    return f"{SIGNS[part.relation]}{plain}" + (f" at {100 * target:g} %" if target is not None else "")


def explanation(judged: Judged) -> str:
    """Why the verdict is what it is, in a sentence or two."""
    claim, findings = judged.claim, judged.findings
    if judged.verdict is Verdict.NOT_RUN:
        lacking = list(dict.fromkeys(m.partition("/")[0] for f in findings for m in f.missing))
        return f"Runs are missing: {', '.join(lacking)}."
    told = claim.if_pass if judged.verdict is Verdict.PASS else claim.if_fail
    if judged.verdict is Verdict.FAIL and not any(f.verdict is Verdict.FAIL and f.median is False for f in findings):
        told = "It holds for the median, but not for 80 % of the seeds."
    if any(f.quick for f in findings):
        told = "A quick look, not the paper's setting."
    if judged.verdict in (Verdict.PASS, Verdict.FAIL):
        return f"{seeds_text(findings)} {told}".strip()
    if any(f.part.metric in NUMBERS and not s.known for f in findings for s in f.spans.values()):
        return "Not all of it was measured in these runs: nothing follows."
    few = [f for f in findings if len(f.spans) < f.needed]
    if few:
        seen = few[0]
        return f"{len(seen.spans)} of the {seen.needed} seeds it takes have been run. {seeds_text(findings)}"
    return f"{seeds_text(findings)} Not reached within the rounds given, or between the seeds: nothing follows."


def seeds_text(findings: Sequence[Finding]) -> str:
    """`Holds for 3 of 3 seeds.`, of the part that does worst."""
    worst = min(findings, key=lambda f: list(f.outcomes.values()).count(True) / max(1, len(f.outcomes)))
    values = list(worst.outcomes.values())
    yes, unknown = values.count(True), values.count(None)
    which = f" ({name(worst.part)} {SIGNS[worst.part.relation]}" if len(findings) > 1 else ""
    which += f"{wanted(worst.part, {})[len(SIGNS[worst.part.relation]) :]})" if which else ""
    rest = f", open for {unknown}" if unknown else ""
    changes = ", ".join(dict.fromkeys(f.changes for f in findings if f.changes))
    scale = f" With {changes}." if changes else ""
    plural = "s" if len(values) > 1 else ""
    return f"Holds for {yes} of {len(values)} seed{plural}{rest}{which}.{scale}"
