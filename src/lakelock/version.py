"""The version of this package."""

from __future__ import annotations

from functools import cache


@cache
def version() -> str:
    """The version that is installed, such as `0.1.0`; `0+unknown` where the package was not installed but copied.

    Reading the metadata of a package is slow, so it is read when it is first asked for.
    """
    from importlib.metadata import PackageNotFoundError
    from importlib.metadata import version as installed

    try:
        return installed("lakelock")
    except PackageNotFoundError:  # imported from a folder or a zip, which has no metadata
        return "0+unknown"
