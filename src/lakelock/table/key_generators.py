"""Hudi's key generators: how a table's properties say from which columns record keys and partition paths are made."""

from __future__ import annotations

from collections.abc import Sequence

TYPE = "hoodie.table.keygenerator.type"
CLASS = "hoodie.table.keygenerator.class"

KNOWN = frozenset({"SIMPLE", "SIMPLE_AVRO", "COMPLEX", "COMPLEX_AVRO", "NON_PARTITION", "NON_PARTITION_AVRO"})
"""The types whose keys and paths lakelock makes as Hudi does."""

_TYPES = {
    "SimpleKeyGenerator": "SIMPLE",
    "SimpleAvroKeyGenerator": "SIMPLE",
    "ComplexKeyGenerator": "COMPLEX",
    "ComplexAvroKeyGenerator": "COMPLEX",
    "NonpartitionedKeyGenerator": "NON_PARTITION",
    "NonpartitionedAvroKeyGenerator": "NON_PARTITION",
    "TimestampBasedKeyGenerator": "TIMESTAMP",
    "CustomKeyGenerator": "CUSTOM",
    "GlobalDeleteKeyGenerator": "GLOBAL_DELETE",
}


def key_generator_for(record_keys: Sequence[str], partition_fields: Sequence[str]) -> str:
    """The type that Hudi chooses for these columns: SIMPLE, COMPLEX or NON_PARTITION."""
    if not partition_fields:
        return "NON_PARTITION"
    return "SIMPLE" if len(record_keys) <= 1 and len(partition_fields) == 1 else "COMPLEX"


def stated_generator(stated: str, named_class: str) -> str | None:
    """The type that a table's entries state, by name or by class: USER for a class that is not Hudi's, None without both."""
    if stated:
        return stated.upper()
    return _TYPES.get(named_class.rpartition(".")[2], "USER") if named_class else None
