"""The paper again: every figure as a panel of runs, every claim as data, and a judge that computes the verdicts.

A panel is a TOML file of `panels/`: an experiment, the curves that differ from it, and the claims it serves. `plan.py`
turns panels into run directories, `summary.py` run directories into small records, `judge.py` records into verdicts,
`page.py` all of it into docs/reproduction.md.
"""
