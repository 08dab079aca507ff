"""Operations as people write them to ask about a conflict: `DELETE month=1`, `UPSERT`, `READ v > 3`.

    OPERATION [partition or condition]

Nothing is looked up here; what the rest means, the table tells.
"""

from __future__ import annotations

from dataclasses import dataclass

from lakelock.errors import InputError
from lakelock.occ.conflicts.footprint import CLUSTER
from lakelock.occ.conflicts.reads import ReadKind
from lakelock.texts import did_you_mean


@dataclass(frozen=True)
class Effect:
    """What an operation may do within its scope. `hudi_name`: what its commit calls it, empty for one that commits nothing.

    `adds`: it may have new rows; `brings`: it certainly has. `reads` by condition (ROWS) or by key; None looks nothing up.
    `replaces`: whatever is there, not only what it finds.
    """

    hudi_name: str
    adds: bool = False
    brings: bool = False
    rewrites: bool = False
    replaces: bool = False
    overwrites: bool = False
    reads: ReadKind | None = None


OPERATIONS: dict[str, Effect] = {
    "INSERT": Effect("INSERT", adds=True, brings=True),
    "UPSERT": Effect("UPSERT", adds=True, brings=True, rewrites=True, reads=ReadKind.KEYS),
    "UPDATE": Effect("UPSERT", rewrites=True, reads=ReadKind.ROWS),
    "DELETE": Effect("DELETE", rewrites=True, reads=ReadKind.ROWS),
    "MERGE": Effect("UPSERT", adds=True, rewrites=True, reads=ReadKind.ROWS),
    "OVERWRITE": Effect("INSERT_OVERWRITE", adds=True, brings=True, replaces=True, overwrites=True),
    "OPTIMIZE": Effect(CLUSTER, adds=True, replaces=True),
    "READ": Effect("", reads=ReadKind.ROWS),
}

ALIASES = {
    "APPEND": "INSERT",
    "BULK_INSERT": "INSERT",
    "INSERT_OVERWRITE": "OVERWRITE",
    "INSERT_OVERWRITE_TABLE": "OVERWRITE",
    "OVERWRITE_PARTITIONS": "OVERWRITE",
    CLUSTER: "OPTIMIZE",
    "SELECT": "READ",
}
"""Other names that Hudi, Delta and this library's own methods have for them."""


@dataclass(frozen=True)
class AskedOperation:
    """`name` is a key of `OPERATIONS`, `scope` the rest of the text, empty for the whole table."""

    name: str
    scope: str = ""

    @property
    def effect(self) -> Effect:
        return OPERATIONS[self.name]

    def __str__(self) -> str:
        return f"{self.name} {self.scope}".strip()


def parse_operation(text: str) -> AskedOperation:
    """The operation that a text asks about; `InputError` for one that names none, with the nearest that there is."""
    word, _, rest = text.strip().partition(" ")
    name = ALIASES.get(word.upper(), word.upper())
    if name not in OPERATIONS:
        problem = (
            f"{word!r} is not an operation{did_you_mean(word, [*OPERATIONS, *ALIASES])}" if word else "the operation is empty"
        )
        example = 'and then a partition or a condition, such as "DELETE month=1"'
        raise InputError(problem, hint=f"begin with one of {', '.join(OPERATIONS)}, {example}")
    scope = rest.strip()
    if scope.upper().startswith("WHERE "):
        scope = scope[len("WHERE ") :].strip()
    return AskedOperation(name, scope)
