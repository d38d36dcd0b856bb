"""Whether pyarrow is there: columns need it, and nothing else does.

Rule: asked before a call that returns columns, so that who installed the package without the
extra reads what to install and not where an import failed.
"""

from __future__ import annotations

from shoal.errors import missing_extra


def need_arrow() -> None:
    """Raises ConfigError: what to install."""
    try:
        import pyarrow as pa  # noqa: F401 - only whether it is there
    except ImportError:
        raise missing_extra("pyarrow", "arrow") from None
