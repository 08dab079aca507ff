"""Which attempt of which task wrote a file: Hudi's write token, the middle part of a base file's name."""

from __future__ import annotations

from typing import NamedTuple


class TaskToken(NamedTuple):
    """One attempt of one task; two attempts never share a token, so their files have different names."""

    partition: int
    stage: int
    attempt: int

    def __str__(self) -> str:
        return f"{self.partition}-{self.stage}-{self.attempt}"
