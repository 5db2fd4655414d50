"""One module a dataset, each with `load(progress=None) -> Dataset`."""
