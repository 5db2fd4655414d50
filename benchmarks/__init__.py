"""Speed and memory benchmarks: `python -m benchmarks`, run from a clone of the repository."""
