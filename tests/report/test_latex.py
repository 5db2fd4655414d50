"""The LaTeX table: escaped, the best in bold, and compiled where pdflatex is installed."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dragfl import report
from dragfl.report.latex import latex_text
from dragfl.report.latex_escape import escape
from tests.conftest import TIMEOUT_S

from .conftest import MakeRun
from .test_export import EARLY, LATE, NEVER, add_metrics

DOCUMENT = "\\documentclass{article}\n\\usepackage{booktabs}\n\\begin{document}\n%s\n\\end{document}\n"


def lines(text: str) -> dict[str, list[str]]:
    """Label -> cells."""
    rows = [line.strip().removesuffix(r" \\").split(" & ") for line in text.splitlines() if line.endswith(r"\\")]
    return {row[0]: row[1:] for row in rows if len(row) > 1}


@pytest.mark.parametrize(
    ("text", "latex"),
    [
        ("50 % & 3_a #1 {x} $", r"50 \% \& 3\_a \#1 \{x\} \$"),
        ("a\\b~c^d", r"a\textbackslash{}b\textasciitilde{}c\textasciicircum{}d"),
        ("α, Δ, Α, ς, λ", r"$\alpha$, $\Delta$, A, $\varsigma$, $\lambda$"),
        ("drag · c=0.5 ± 2 × 3", r"drag $\cdot$ c=0.5 $\pm$ 2 $\times$ 3"),
        ("Müller, Čech, naïve", r"M\"{u}ller, \v{C}ech, na\"{\i}ve"),
        ("[a]* b", "{[}a]{*} b"),  # after a line break, [a] and * would be its options
        ("中 🙂", "U+4E2D U+1F642"),
        ('ﬁne ½ "', r"fine 1/2 ''"),
        ("a\nb\tc", "a b c"),
    ],
)
def test_escape(text: str, latex: str) -> None:
    assert escape(text) == latex


@given(st.text(max_size=30))
def test_escaped_text_is_ascii_with_balanced_braces_and_dollars(text: str) -> None:
    out = escape(text)
    assert out.isascii() and "\n" not in out
    bare = re.sub(r"\\[{}$&%#_]|\\textbackslash|\\\W", "", out)
    assert bare.count("{") == bare.count("}") and bare.count("$") % 2 == 0
    assert not set(bare) & set("&%#_")


def test_the_best_of_each_column_is_bold(make_run: MakeRun) -> None:
    """Rounds: fewer are better. drag: 4, final 0.85, best 0.9. fedavg: 8, 0.95, 0.95. Not reached is never bold."""
    make_run("a", rounds=10, curve=EARLY)
    make_run("b", algorithm="fedavg", rounds=10, curve=LATE)
    run = make_run("c", algorithm="fltrust", rounds=10, curve=NEVER)
    found = lines(latex_text(report.summarize_runs(run.path.parent)))
    assert found["Algorithm"] == [r"to 80 \%", "Final", "Best"]
    assert found["drag"] == [r"\textbf{4}", "85.0", "90.0"]
    assert found["fedavg"] == ["8", r"\textbf{95.0}", r"\textbf{95.0}"]
    assert found["fltrust"] == ["$>$ 10", "70.0", "75.0"]


def test_ties_are_all_bold_and_a_single_row_is_not(make_run: MakeRun) -> None:
    """0.9000 and 0.9004 are both printed as 90.0, so both are bold."""
    one = make_run("a", rounds=2, curve=[0.9])
    assert "textbf" not in latex_text(report.summarize_runs(one))
    run = make_run("b", algorithm="fedavg", rounds=2, curve=[0.9004])
    found = lines(latex_text(report.summarize_runs(run.path.parent)))
    assert found["drag"][1:] == found["fedavg"][1:] == [r"\textbf{90.0}"] * 2


def test_only_comparable_rows_compete(make_run: MakeRun) -> None:
    """Each dataset and attack is a block with its own best; the labels leave out what the heading has."""
    for i, (attack, dataset) in enumerate([(None, "digits"), ("sign_flip", "digits"), (None, "mnist")]):
        for algorithm, end in (("drag", 0.9 - 0.1 * i), ("fedavg", 0.5)):
            name = f"{algorithm}{i}"
            run = make_run(
                name, algorithm=algorithm, rounds=2, curve=[end], attack=attack, spec={"data.dataset": dataset}
            )
    text = latex_text(report.summarize_runs(run.path.parent))
    assert re.findall(r"\\emph\{(.*?)\}\}", text) == ["digits, no attack", r"digits, sign\_flip", "mnist, no attack"]
    assert [end for end in ("90.0", "80.0", "70.0") if rf"\textbf{{{end}}}" in text] == ["90.0", "80.0", "70.0"]
    assert text.count("    drag & ") == 3 and r"\textbf{50.0}" not in text


def test_the_caption_states_seeds_rounds_and_spread(make_run: MakeRun) -> None:
    for seed in (0, 1):
        make_run(f"a{seed}", seed=seed, rounds=10, curve=[EARLY, NEVER][seed])
        run = make_run(f"b{seed}", algorithm="fedavg", seed=seed, rounds=10, curve=NEVER)
    make_run("boom", algorithm="fltrust", seed=0, rounds=10, ran=3, curve=[0.5], diverged=True)
    make_run("half", algorithm="fltrust", seed=1, rounds=10, ran=3, curve=[0.5], finished=False)
    text = latex_text(report.summarize_runs(run.path.parent))
    assert r"on digits, sorted\_shards, no attack: mean $\pm$ sample standard deviation (seeds 0, 1, 10 rounds)" in text
    assert (
        "not reached in N rounds" in text
        and "(k of n): k of n runs reached it" in text
        and "counts as chance level" in text
    )
    assert r"$^\dagger$: some runs have not finished" in text and r"fltrust$^\dagger$ & diverged" in text


def test_client_columns(make_run: MakeRun) -> None:
    """The lowest variance is best; it is that of accuracies in percent."""
    for algorithm, variance in (("drag", 0.02), ("fedavg", 0.01)):
        run = make_run(algorithm, algorithm=algorithm, rounds=2, curve=[0.5])
        add_metrics(
            run, client_accuracy_mean=0.8, client_accuracy_worst_decile=variance, client_accuracy_variance=variance
        )
    found = lines(latex_text(report.summarize_runs(run.path.parent)))
    assert found["Algorithm"][-3:] == ["Mean", r"Worst 10 \%", "Variance"]
    assert found["drag"][-3:] == [r"\textbf{80.0}", r"\textbf{2.0}", "200.0"]
    assert found["fedavg"][-3:] == [r"\textbf{80.0}", "1.0", r"\textbf{100.0}"]
    make_run("boom", algorithm="fedavg", seed=1, rounds=2, ran=1, diverged=True)
    found = lines(latex_text(report.summarize_runs(run.path.parent)))
    assert (found["drag"][-1], found["fedavg"][-1]) == (r"\textbf{200.0}", "100.0"), "one of two runs: not compared"


def test_a_long_label_is_broken_into_lines(make_run: MakeRun) -> None:
    run = make_run("a", rounds=2, spec={"algorithm.name": "a_rule_with_a_very_long_name"})
    assert r"{10em}{\raggedright\hangindent=1em a\_\allowbreak{}rule" in latex_text(report.summarize_runs(run))


@pytest.mark.skipif(
    shutil.which("pdflatex") is None, reason="pdflatex is not installed: apt-get install texlive-latex-extra"
)
def test_pdflatex_compiles_the_table(make_run: MakeRun, tmp_path: Path) -> None:
    nasty = "[αβγ_50%_{x}·Müller\\&#$~^<>|\"'`中ß½ŁøÆ–—…²√∞≤"
    make_run("a", rounds=10, curve=EARLY, spec={"algorithm.name": nasty})
    run = make_run("b", algorithm="fedavg", rounds=10, curve=NEVER, attack="sign_flip")
    report.write_latex(report.summarize_runs(run.path.parent), tmp_path / "table.tex")
    compile_latex(tmp_path, "\\input{table.tex}")


@pytest.mark.skipif(
    shutil.which("pdflatex") is None, reason="pdflatex is not installed: apt-get install texlive-latex-extra"
)
def test_pdflatex_compiles_every_character(tmp_path: Path) -> None:
    """ASCII, Latin, Greek, punctuation, arrows and mathematical symbols."""
    ranges = ((32, 127), (0xA0, 0x180), (0x370, 0x400), (0x2010, 0x2300))
    text = "".join(chr(code) for first, last in ranges for code in range(first, last))
    compile_latex(tmp_path, "\n\n".join(escape(text[i : i + 20]) for i in range(0, len(text), 20)))


def compile_latex(folder: Path, body: str) -> None:
    (folder / "paper.tex").write_text(DOCUMENT % body)
    command = ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", "paper.tex"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, errors="replace", timeout=TIMEOUT_S)
    assert done.returncode == 0, done.stdout[-2000:]
    assert (folder / "paper.pdf").stat().st_size > 10_000
