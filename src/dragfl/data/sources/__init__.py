"""One module per dataset, each with `load(progress=None) -> Dataset`."""

TABULAR = ("breast_cancer", "wine", "iris")  # tables that scikit-learn contains
