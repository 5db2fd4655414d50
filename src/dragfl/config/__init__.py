"""From a TOML file to a run directory: spec, run, checkpoint, resume."""
