"""The release of another program, as far as lakelock compares it."""

from __future__ import annotations


def release(version: str) -> tuple[int, ...]:
    """`2.3.0.dev1` as (2, 3), and `3.5-vendor` as (3, 5): the first two numbers, 0 for a part that has none."""
    return tuple(int("".join(c for c in part if c.isdigit()) or 0) for part in version.split(".")[:2])
