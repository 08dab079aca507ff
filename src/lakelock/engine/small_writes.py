"""Writes by key, of one writer or of all the members of a group, and what such a write did for each of its members."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import chain, product
from math import prod
from typing import Any

import pyarrow as pa

from lakelock.engine.batch import Batch, Place
from lakelock.engine.group_commit import NotTogether, SmallWrite, may_group
from lakelock.engine.reads import KeysRead
from lakelock.errors import InputError
from lakelock.occ.committed import Committed
from lakelock.occ.coordinator import Coordinator
from lakelock.occ.footprint import BucketsRead
from lakelock.occ.offers import MOST_BYTES, Offer
from lakelock.occ.transaction import Transaction
from lakelock.settings import WriteSettings
from lakelock.table.commit_metadata import WriteStat
from lakelock.table.partitions import with_generated
from lakelock.table.properties import TableProperties
from lakelock.table.record_keys import require_key
from lakelock.table.rewriting import Kernels, KeyedRows, Located
from lakelock.table.schema import TableSchema, columns_of_keys

BatchOf = Callable[[Transaction, TableSchema, Any], Batch]
"""The batch of a transaction that writes rows."""
_MOST_KEYS = 1_000
"""A condition that names more keys is left as it is."""


def upserted(batch: Batch, keyed: Mapping[str, KeyedRows]) -> tuple[Place, list[WriteStat]]:
    """Claim and write, for an upsert, rows of which no two have the same key: where they went, and the files."""
    tx = batch.tx
    by_rows = batch.index is None or tx.baseline.properties.is_merge_on_read
    if by_rows:
        tx.reads(KeysRead(batch.storage, batch.kernels, keyed, "keys of the upsert"))
    place = batch.tagged(keyed) if batch.index is None else batch.placed(keyed)
    if not by_rows:
        tx.reads(BucketsRead("keys of the upsert", [*(file.group for file in place.files), *place.claims]))
    batch.claim(place.files, place.claims, place.new)
    stats = [stat for file, changes in place.known for stat in batch.rewritten(file, upserts=changes)]
    return place, [*stats, *batch.new_files(place)]


def deleted(batch: Batch, keyed: Mapping[str, KeyedRows]) -> tuple[Place, list[WriteStat]]:
    """Claim the file groups that hold these keys, and rewrite them without: where the keys are, and the files."""
    batch.tx.reads(KeysRead(batch.storage, batch.kernels, keyed, "keys of the delete"))
    place = batch.tagged(keyed)
    batch.claim(place.files)
    among = batch.kernels.among
    return place, [stat for file, found in place.known for stat in batch.rewritten(file, delete_mask=among(found))]


class SmallWrites:
    """Makes those writes of an engine that others may carry out along with their own; None where a write is none of these."""

    def __init__(self, coordinator: Coordinator, kernels: Kernels, batch_of: BatchOf) -> None:
        self._coordinator, self._kernels, self._batch_of = coordinator, kernels, batch_of

    def insert(self, rows: Any, tag: str) -> SmallWrite | None:
        def fitted(schema: TableSchema, properties: TableProperties) -> Any:
            return self._kernels.fitted(with_generated(rows, properties), schema, merge=False)[1]

        return self._small("INSERT", rows, tag, fitted, self._commit_inserts)

    def upsert(self, rows: Any, tag: str, settings: WriteSettings) -> SmallWrite | None:
        fills = settings.missing_columns == "null"

        def fitted(schema: TableSchema, properties: TableProperties) -> Any:
            require_partitions_apart(properties, "an upsert")
            given = with_generated(rows, properties)
            found = self._kernels.fitted_upserts(given, schema, properties, merge=False, missing="null" if fills else "keep")[1]
            return self._one_for_each_key(found, properties, take_any=settings.duplicates == "any")

        return self._small("UPSERT", rows, tag, fitted, self._commit_upserts)

    def delete(self, keys: Any, tag: str) -> SmallWrite | None:
        def fitted(schema: TableSchema, properties: TableProperties) -> Any:
            require_partitions_apart(properties, "a delete by keys")
            found = self._kernels.fitted_keys(with_generated(keys, properties), schema, properties)
            return self._one_for_each_key(found, properties, take_any=True)

        return self._small("DELETE", keys, tag, fitted, self._commit_deletes, columns=columns_of_keys)

    def keys_of(self, named: Mapping[str, pa.Array]) -> pa.Table | None:
        """The keys and partitions that a condition names, if it says nothing else: then it is a delete by key. Else None."""
        properties = self._coordinator.properties
        if not named or named.keys() != {*properties.record_keys, *properties.partition_fields} or properties.transforms:
            return None
        values = [each.unique() for each in named.values()]
        if prod(map(len, values)) > _MOST_KEYS:
            return None
        rows = [*product(*(each.to_pylist() for each in values))]
        columns = [pa.array([row[at] for row in rows], each.type) for at, each in enumerate(values)]
        return pa.table(columns, names=[*named])

    def _small(
        self,
        operation: str,
        rows: Any,
        tag: str,
        fitted: Callable[[TableSchema, TableProperties], Any],
        commit: Callable[[Transaction, Sequence[Offer], Sequence[Any]], Committed],
        columns: Callable[[TableSchema, TableProperties], TableSchema] = lambda schema, _: schema,
    ) -> SmallWrite | None:
        small = rows.num_rows > 0 and rows.nbytes <= MOST_BYTES and may_group(self._coordinator)
        return SmallWrite(operation, tag, columns, fitted, commit) if small else None

    def _one_for_each_key(self, rows: Any, properties: TableProperties, *, take_any: bool) -> Any:
        parts = self._kernels.by_partition(rows, properties).values()
        return self._kernels.together(
            [self._kernels.dedupe(part, properties.ordering_field, take_any=take_any).rows for part in parts]
        )

    def _commit_inserts(self, tx: Transaction, offers: Sequence[Offer], rows: Sequence[Any]) -> Committed:
        """One file for each partition, all at once."""
        batch = self._batch_of(tx, tx.schema, self._kernels.together(rows))
        new = batch.by_partition().items()
        written = self._coordinator.table.at_once(
            *[partial(batch.write_new, partition, None, keyed) for partition, keyed in new]
        )
        tx.offers = [_counted(offer, inserted=offer.member.rows) for offer in offers]
        return tx.commit([*chain.from_iterable(written)])

    def _commit_upserts(self, tx: Transaction, offers: Sequence[Offer], rows: Sequence[Any]) -> Committed:
        batch, keyed, fresh = self._grouped(tx, rows, tx.baseline.properties.ordering_field)
        place, stats = upserted(batch, keyed)
        _require_once(keyed, place, sum(stat.num_update_writes or 0 for stat in stats))
        new = self._missing(fresh, place)
        tx.offers = [
            _counted(each, inserted=count, updated=each.member.rows - count) for each, count in zip(offers, new, strict=True)
        ]
        return tx.commit(stats)

    def _commit_deletes(self, tx: Transaction, offers: Sequence[Offer], rows: Sequence[Any]) -> Committed:
        batch, keyed, fresh = self._grouped(tx, rows, None)
        place, stats = deleted(batch, keyed)
        _require_once(keyed, place, sum(stat.num_deletes or 0 for stat in stats))
        missing = self._missing(fresh, place)
        tx.offers = [
            _counted(offer, deleted=sum(map(len, mine.values())) - count)
            for offer, mine, count in zip(offers, fresh, missing, strict=True)
        ]
        return tx.commit(stats)

    def _grouped(
        self, tx: Transaction, rows: Sequence[Any], ordering_field: str | None
    ) -> tuple[Batch, Mapping[str, KeyedRows], list[Mapping[str, KeyedRows]]]:
        """The batch of all members, the rows that it writes, and each member's rows whose keys no member before it has.

        Of several rows with one key it writes the last, unless another is newer by the ordering column.
        """
        kernels, properties = self._kernels, tx.baseline.properties
        batch = self._batch_of(tx, tx.schema, kernels.together(rows))
        all_rows = batch.by_partition()
        keyed = {partition: kernels.dedupe(found, ordering_field, take_any=True) for partition, found in all_rows.items()}
        members = [kernels.by_partition(each, properties) for each in rows]
        if all(len(keyed[partition]) == len(found) for partition, found in all_rows.items()):
            return batch, keyed, members
        if ordering_field is not None:
            raise NotTogether  # which rows are too old depends on what is stored
        fresh: list[Mapping[str, KeyedRows]] = []
        before: dict[str, list[KeyedRows]] = defaultdict(list)
        for mine in members:
            fresh.append({partition: kernels.without(found, before[partition]) for partition, found in mine.items()})
            for partition, found in mine.items():
                before[partition].append(found)
        return batch, keyed, fresh

    def _missing(self, members: Sequence[Mapping[str, KeyedRows]], place: Place) -> list[int]:
        """How many of the rows of each member no file group held."""
        held: dict[str, list[KeyedRows]] = defaultdict(list)
        for file, found in place.known:
            held[file.partition].append(found)
        without = self._kernels.without
        return [sum(len(without(rows, held[partition])) for partition, rows in mine.items()) for mine in members]


def _require_once(keyed: Mapping[str, KeyedRows], place: Place, changed: int) -> None:
    """`NotTogether` if a stored row was not changed, being newer, or if a key is stored twice, in a file or in two."""
    known, new = sum(len(rows) for _, rows in place.known), sum(map(len, place.new.values()))
    stored = sum(len(rows.at) if isinstance(rows, Located) else len(rows) for _, rows in place.known)
    if not changed == stored == known or known + new != sum(map(len, keyed.values())):
        raise NotTogether


def _counted(offer: Offer, *, inserted: int = 0, updated: int = 0, deleted: int = 0) -> Offer:
    return replace(offer, member=replace(offer.member, inserted=inserted, updated=updated, deleted=deleted))


def require_partitions_apart(properties: TableProperties, what: str) -> None:
    """`InputError` unless rows have keys that are looked up in their own partition."""
    require_key(properties, what)
    if properties.keys_span_partitions:
        raise InputError(
            f"{what} without Spark looks a key up in its own partition only, and {properties.name} has index=global",
            hint="use LakeTable, which looks into every partition and moves rows",
        )
