"""What drawing needs beyond the core, asked for with a sentence a user can act on."""

from __future__ import annotations

from importlib.util import find_spec

from dragfl.errors import SpecError


def require(*modules: str) -> None:
    """An error that names the extra, before half a report has been made."""
    missing = [name for name in modules if find_spec(name) is None]
    if missing:
        raise SpecError(
            f"report: drawing needs {' and '.join(missing)}, not installed here: pip install 'dragfl[report]' "
            "(the table, `dragfl.report.table`, needs neither)"
        )
