"""Amounts as people read them."""

from __future__ import annotations


def size_text(size_bytes: int) -> str:
    """A number of bytes, such as `2.5 KiB`."""
    amount = float(size_bytes)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if amount < 1024:
            return f"{amount:.0f} {unit}" if unit == "B" else f"{amount:.1f} {unit}"
        amount /= 1024
    return f"{amount:.1f} TiB"


def counted(number: int, what: str, several: str = "") -> str:
    """A number of things: `1 file`, `2,000 files`. `several`: the plural of a word that takes more than an s."""
    return f"{number:,} {what if number == 1 else several or what + 's'}"
