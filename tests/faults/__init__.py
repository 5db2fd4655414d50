"""Faults, by the hundred: `make test-faults` injects them and prints one table. A module has the rows of one kind."""
