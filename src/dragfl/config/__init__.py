"""The spec of an experiment: tables, overrides, names of parts, checks. Imports neither torch nor the engine."""
