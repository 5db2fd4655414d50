"""Reproducing the paper: its figures and claims as data, and verdicts computed from runs.

A figure is a TOML file in `figures/`: a base experiment and the curves that differ from it. `runs.py` executes the runs
of figures, `summary.py` makes small summaries of them, and `verdicts.py` judges the claims of `claims.toml` from
summaries.
"""
