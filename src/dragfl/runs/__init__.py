"""Run directories: one run, many runs, checkpoints, and the loop over rounds."""
