"""The index of a Java writer's properties file in our terms: lakelock uses the same buckets, or moves rows as it does."""

from __future__ import annotations

from collections.abc import Mapping

from lakelock.settings.given import Refused

_TYPE, _ENGINE = "hoodie.index.type", "hoodie.index.bucket.engine"
_COUNT, _FIELDS = "hoodie.bucket.index.num.buckets", "hoodie.bucket.index.hash.field"
_EXPRESSIONS, _RULE = "hoodie.bucket.index.partition.expressions", "hoodie.bucket.index.partition.rule.type"
_MOVES = {
    "GLOBAL_SIMPLE": "hoodie.simple.index.update.partition.path",
    "GLOBAL_BLOOM": "hoodie.bloom.index.update.partition.path",
}
INDEX_KEYS = (_TYPE, _ENGINE, _COUNT, _FIELDS, _EXPRESSIONS, _RULE, *_MOVES.values())
_JAVAS_COUNT = "256"


def index_of(properties: Mapping[str, str]) -> tuple[object, str] | None:
    """The value of `write.index` and the key that it is from; None where the file chooses no index that a table records."""
    said = {key: properties.get(key, "").strip() for key in INDEX_KEYS}
    if moves := _MOVES.get(said[_TYPE].upper()):
        if said[moves].lower() not in ("", "true"):
            hint = "lakelock moves such a row to the partition that its new version names, as Hudi does by default"
            return Refused(f"{moves}={said[moves]} leaves a row in the partition of its first version", hint), moves
        return "global", _TYPE
    if said[_TYPE].upper() != "BUCKET":
        return None
    if said[_ENGINE].upper() not in ("", "SIMPLE"):
        hint = f"lakelock writes buckets of {_ENGINE}=SIMPLE; it reads the others"
        return Refused(
            f"{_ENGINE}={said[_ENGINE]} moves rows between buckets in ways that lakelock does not follow", hint
        ), _ENGINE
    if said[_EXPRESSIONS]:
        hint = "lakelock writes tables with the same number of buckets in each partition; it reads the others"
        return Refused(f"{_EXPRESSIONS} gives partitions different numbers of buckets", hint), _EXPRESSIONS
    fields = f":{said[_FIELDS]}" if said[_FIELDS] else ""
    return f"bucket:{said[_COUNT] or _JAVAS_COUNT}{fields}", _COUNT if said[_COUNT] else _TYPE
