"""One module per dataset, each with `load(progress=None) -> Dataset`."""
