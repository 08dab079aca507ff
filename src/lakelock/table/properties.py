"""The properties of a table, `.hoodie/hoodie.properties`, with the merge mode and the key generator that they state.

The merge mode says which of two versions of a row wins: by Hudi's merge modes, and by its payload classes before 1.0. The
key generator says from which columns record keys and partition paths are made.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache

from lakelock.errors import CorruptTableError, InputError, TableError, damage_of_table
from lakelock.parsing import format_java_properties, iso_date, java_date, parse_java_properties
from lakelock.storage import Storage
from lakelock.table.index import BUCKET_KEYS, BucketIndex, GlobalIndex, TableIndex, stated_index
from lakelock.table.layout import PROPERTIES, PROPERTIES_BACKUP
from lakelock.table.transforms import Transform, parsed_transforms

BY_EVENT_TIME = "EVENT_TIME_ORDERING"
"""The greater ordering value wins."""

BY_COMMIT_TIME = "COMMIT_TIME_ORDERING"
"""The later commit wins."""

CUSTOM_MERGE = "CUSTOM"
"""A class of the user's decides, or one of Hudi's that lakelock does not know."""

KNOWN_MERGE_MODES = frozenset({BY_EVENT_TIME, BY_COMMIT_TIME})
"""The modes by which lakelock merges as Hudi does."""

MERGE_MODE = "hoodie.record.merge.mode"
PAYLOAD_CLASS = "hoodie.compaction.payload.class"
MERGE_STRATEGY = "hoodie.record.merge.strategy.id"

_WRITTEN = {
    BY_EVENT_TIME: ("org.apache.hudi.common.model.DefaultHoodieRecordPayload", "eeb8d96f-b1e4-49fd-bbf8-28ac514178e5"),
    BY_COMMIT_TIME: ("org.apache.hudi.common.model.OverwriteWithLatestAvroPayload", "ce9acb64-bde0-424c-9b91-f6ebba25356d"),
}
"""How version 8 says it besides the mode: the payload class, and the id of Hudi's merger."""

_MEANT = {
    **{payload: mode for mode, (payload, _) in _WRITTEN.items()},
    "org.apache.hudi.common.model.EventTimeAvroPayload": BY_EVENT_TIME,
}
"""What a payload class means where no mode is written: in tables that Hudi before 1.0 made."""


def stated_merging(*, ordered: bool, with_payload: bool) -> dict[str, str]:
    """The entries of a new table that has an ordering column or not; version 8 names the payload class, too."""
    mode = BY_EVENT_TIME if ordered else BY_COMMIT_TIME
    payload, strategy = _WRITTEN[mode]
    return {MERGE_MODE: mode, PAYLOAD_CLASS: payload, MERGE_STRATEGY: strategy} if with_payload else {MERGE_MODE: mode}


def merge_mode(stated: str, payload: str, *, ordered: bool) -> str:
    """The merge mode of a table: as it is stated, or inferred as Hudi does; an empty text is a missing entry."""
    if stated:
        return stated.upper()
    if payload:
        return _MEANT.get(payload, CUSTOM_MERGE)
    return BY_EVENT_TIME if ordered else BY_COMMIT_TIME


KEY_GENERATOR_TYPE = "hoodie.table.keygenerator.type"
KEY_GENERATOR_CLASS = "hoodie.table.keygenerator.class"

KNOWN_KEY_GENERATORS = frozenset({"SIMPLE", "SIMPLE_AVRO", "COMPLEX", "COMPLEX_AVRO", "NON_PARTITION", "NON_PARTITION_AVRO"})
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


NAME = "hoodie.table.name"
CHECKSUM = "hoodie.table.checksum"
METADATA_PARTITIONS = "hoodie.table.metadata.partitions"
METADATA_INFLIGHT = "hoodie.table.metadata.partitions.inflight"
_OF_METADATA = frozenset({METADATA_PARTITIONS, METADATA_INFLIGHT, "hoodie.table.index.defs.path"})
TIMEZONE = "hoodie.table.timeline.timezone"
NEWEST_VERSION = 9
COPY_ON_WRITE, MERGE_ON_READ = "COPY_ON_WRITE", "MERGE_ON_READ"
TRANSFORMS = "lakelock.partition.transforms"
"""How partition columns are computed: `days(ts), bucket(16, id)`. Hudi keeps entries that it does not know."""


def table_checksum(name: str, database: str = "") -> int:
    """The checksum of a table's name that Java checks when it opens the table."""
    return zlib.crc32(f"{database}.{name}".encode())


@dataclass(frozen=True)
class TableProperties:
    """A table's properties. `values` holds every entry as written; the accessors give the meaning."""

    values: Mapping[str, str] = field(hash=False)

    @classmethod
    def parse(cls, data: bytes, source: str = PROPERTIES) -> TableProperties:
        """The properties in a file; one without a table name or with a wrong checksum is damaged, as for Java."""
        return _parsed(data, source)

    @classmethod
    def new(
        cls,
        name: str,
        record_keys: Sequence[str],
        partition_fields: Sequence[str] = (),
        ordering_field: str | None = None,
        *,
        hive_style: bool = True,
        url_encode: bool = True,
        create_schema: str | None = None,
        database: str = "",
        transforms: Sequence[Transform] = (),
        version: int = NEWEST_VERSION,
        table_type: str = COPY_ON_WRITE,
    ) -> TableProperties:
        """The properties of a new table: UTC, no metadata table, as Hudi 1.2 would write them for version 9, and
        Hudi 1.0 for version 8.

        Without `record_keys` each row gets a key of its own when it is written, as Hudi does it.
        """
        values = {
            NAME: name,
            "hoodie.table.type": table_type,
            "hoodie.table.version": str(version),
            "hoodie.table.initial.version": str(version),
            "hoodie.timeline.layout.version": "2",
            "hoodie.table.base.file.format": "PARQUET",
            KEY_GENERATOR_TYPE: key_generator_for(record_keys, partition_fields),
            **stated_merging(ordered=bool(ordering_field), with_payload=version < NEWEST_VERSION),
            "hoodie.table.timeline.timezone": "UTC",
            "hoodie.timeline.path": "timeline",
            "hoodie.timeline.history.path": "history",
            "hoodie.archivelog.folder": "history",
            "hoodie.populate.meta.fields": "true",
            "hoodie.datasource.write.drop.partition.columns": "false",
            "hoodie.datasource.write.hive_style_partitioning": str(hive_style).lower(),
            "hoodie.datasource.write.partitionpath.urlencode": str(url_encode).lower(),
            "hoodie.table.cdc.enabled": "false",
            "hoodie.table.multiple.base.file.formats.enable": "false",
            "hoodie.partition.metafile.use.base.format": "false",
        }
        if record_keys:
            values["hoodie.table.recordkey.fields"] = ",".join(record_keys)
        if partition_fields:
            values["hoodie.table.partition.fields"] = ",".join(partition_fields)
        ordering_key = "hoodie.table.ordering.fields" if version == NEWEST_VERSION else "hoodie.table.precombine.field"
        if version == NEWEST_VERSION:
            values["hoodie.table.format"] = "native"
        if ordering_field:
            values[ordering_key] = ordering_field
        if create_schema is not None:
            values["hoodie.table.create.schema"] = create_schema
        if database:
            values["hoodie.database.name"] = database
        if transforms:
            values[TRANSFORMS] = ", ".join(map(str, transforms))
        values[CHECKSUM] = str(table_checksum(name, database))
        return cls(values)

    def indexed(self, index: TableIndex | None) -> TableProperties:
        """These properties of a table with an index, which Java keeps in the options of its writers only."""
        if index is None:
            return self
        return TableProperties({**self.values, **index.hashing(self.record_keys).as_values()})

    def unpartitioned(self) -> TableProperties:
        """These properties of rows whose partitions do not matter; their keys read as they do here."""
        none = {"hoodie.table.partition.fields": None, TRANSFORMS: None}
        return self.changed({**none, KEY_GENERATOR_TYPE: self.key_generator})

    def unindexed(self) -> TableProperties:
        """These properties as they are written to the file."""
        none = {key: value for key, value in self.values.items() if not key.startswith(BUCKET_KEYS)}
        return TableProperties(none)

    @cached_property
    def index(self) -> TableIndex | None:
        """The index that all writers of the table use; None where each partition's keys are looked up in its files."""
        return stated_index(self.values, self.record_keys)

    @property
    def bucket_index(self) -> BucketIndex | None:
        """The buckets that the table's rows lie in, None where keys are looked up in the files."""
        return self.index if isinstance(self.index, BucketIndex) else None

    @property
    def keys_span_partitions(self) -> bool:
        """Whether a key is looked up in all partitions, so that its row may move from one to another."""
        return isinstance(self.index, GlobalIndex) and bool(self.partition_fields)

    def changed(self, values: Mapping[str, str | None]) -> TableProperties:
        """These properties with other values; None takes a key out."""
        merged = {**self.values, **values}
        return TableProperties({key: value for key, value in merged.items() if value is not None})

    def serialize(self, now_ms: int) -> bytes:
        """The file's content, saved at `now_ms`."""
        return format_java_properties(self.values, (f"Properties saved on {iso_date(now_ms)}", java_date(now_ms)))

    @property
    def name(self) -> str:
        return self.values[NAME]

    @property
    def database(self) -> str:
        return self.values.get("hoodie.database.name", "")

    @property
    def expected_checksum(self) -> int:
        return table_checksum(self.name, self.database)

    @property
    def version(self) -> int:
        """The table version, 0 when the file does not say."""
        return self._number("hoodie.table.version")

    @property
    def initial_version(self) -> int:
        """The version that the table was made with; the present one when the file does not say."""
        return self._number("hoodie.table.initial.version") or self.version

    @property
    def layout(self) -> int:
        """The version of the timeline's layout, 0 when the file does not say."""
        return self._number("hoodie.timeline.layout.version")

    @property
    def type(self) -> str:
        """COPY_ON_WRITE (Hudi's default where it is not written) or MERGE_ON_READ."""
        return self.text("hoodie.table.type", COPY_ON_WRITE).upper()

    @property
    def is_merge_on_read(self) -> bool:
        """Whether rows may live in log files."""
        return self.type != COPY_ON_WRITE

    @property
    def base_file_format(self) -> str:
        return self.text("hoodie.table.base.file.format", "PARQUET").upper()

    @cached_property
    def record_keys(self) -> tuple[str, ...]:
        return self._names("hoodie.table.recordkey.fields")

    @cached_property
    def partition_fields(self) -> tuple[str, ...]:
        return self._names("hoodie.table.partition.fields")

    @cached_property
    def transforms(self) -> tuple[Transform, ...]:
        """How partition columns are computed from other columns. None if unknown to this version, which then does not write."""
        try:
            return parsed_transforms(self.text(TRANSFORMS, ""))
        except InputError:
            return ()

    @property
    def partition_by(self) -> tuple[str, ...]:
        """The partition columns as `create` names them: `region`, `days(ts)`."""
        computed = {transform.name: str(transform) for transform in self.transforms}
        return tuple(computed.get(name, name) for name in self.partition_fields)

    @cached_property
    def ordering_fields(self) -> tuple[str, ...]:
        """The columns that order versions of a row, as written; version 8 calls them precombine field."""
        return self._names("hoodie.table.ordering.fields") or self._names("hoodie.table.precombine.field")

    @property
    def needed_columns(self) -> tuple[tuple[str, str], ...]:
        """The columns that the rows of an upsert must have, with what they are for."""
        keys = [(name, "key") for name in self.record_keys]
        partition = [(name, "partition") for name in self.partition_fields]
        ordering = [] if self.ordering_field is None else [(self.ordering_field, "ordering")]
        return (*keys, *partition, *ordering)

    @property
    def ordering_field(self) -> str | None:
        """The column that decides which version of a row wins, None when the later commit does."""
        fields = self.ordering_fields
        return fields[0] if fields and self.merge_mode == BY_EVENT_TIME else None

    @property
    def merge_mode(self) -> str:
        """EVENT_TIME_ORDERING, COMMIT_TIME_ORDERING or CUSTOM; inferred as Hudi does where it is not written."""
        stated, payload = self.text(MERGE_MODE, ""), self.text(PAYLOAD_CLASS, "")
        return merge_mode(stated, payload, ordered=bool(self.ordering_fields))

    @property
    def key_generator(self) -> str:
        """SIMPLE, COMPLEX, NON_PARTITION or what else is written; inferred as Hudi does where nothing is."""
        stated = stated_generator(self.text(KEY_GENERATOR_TYPE, ""), self.text(KEY_GENERATOR_CLASS, ""))
        return stated or key_generator_for(self.record_keys, self.partition_fields)

    @property
    def hive_style(self) -> bool:
        """Whether partition folders read `field=value`."""
        return self.flag("hoodie.datasource.write.hive_style_partitioning")

    @property
    def url_encode(self) -> bool:
        """Whether special characters in partition values are escaped."""
        return self.flag("hoodie.datasource.write.partitionpath.urlencode")

    @property
    def timezone(self) -> str:
        """The zone of the instant times: UTC, or LOCAL (Hudi's default where it is not written)."""
        return self.text("hoodie.table.timeline.timezone", "LOCAL").upper()

    @cached_property
    def metadata_partitions(self) -> tuple[str, ...]:
        """The partitions of the metadata table, being built or ready; none means that there is no metadata table."""
        return self._names(METADATA_PARTITIONS) + self.metadata_partitions_underway

    @property
    def metadata_partitions_underway(self) -> tuple[str, ...]:
        """The partitions of the metadata table that are being built."""
        return self._names(METADATA_INFLIGHT)

    @property
    def create_schema(self) -> str | None:
        """The Avro schema (JSON) that the table was created with."""
        return self.values.get("hoodie.table.create.schema") or None

    def differences(self, other: TableProperties) -> frozenset[str]:
        """The Hudi keys whose values differ in `other`; an empty value equals a missing one, and foreign keys do not count.

        Nor do those about the metadata table, which changes with each Java writer's options: it is looked at when it is kept.
        """
        if self.values == other.values:
            return frozenset()
        keys = {key for key in (*self.values, *other.values) if key.startswith("hoodie.") and key not in _OF_METADATA}
        return frozenset(key for key in keys if self.text(key, "") != other.text(key, ""))

    def text(self, key: str, default: str) -> str:
        """A value without the white space around it, or the default for one that is missing or empty."""
        return self.values.get(key, "").strip() or default

    def flag(self, key: str, default: bool = False) -> bool:
        return self.text(key, str(default)).lower() == "true"

    def _number(self, key: str) -> int:
        text = self.text(key, "0")
        if not (text.isascii() and text.isdigit() and len(text) <= 9):
            raise CorruptTableError(f"{PROPERTIES}: {key} is {text!r} where a number belongs", file=PROPERTIES)
        return int(text)

    def _names(self, key: str) -> tuple[str, ...]:
        return tuple(name.strip() for name in self.values.get(key, "").split(",") if name.strip())


@lru_cache(maxsize=8)  # every transaction reads the file, and it hardly ever changes
def _parsed(data: bytes, source: str) -> TableProperties:
    values = parse_java_properties(data, source)
    if not values.get(NAME):
        raise CorruptTableError(f"{source} has no {NAME}: it is damaged, or it is not a table's properties file", file=source)
    properties = TableProperties(values)
    stated = values.get(CHECKSUM)
    if stated is not None and stated != str(properties.expected_checksum):
        raise CorruptTableError(
            f"{source}: {CHECKSUM} is {stated} where the name {properties.name!r} gives {properties.expected_checksum}",
            hint=f"the file is damaged or was edited; compare it with {PROPERTIES_BACKUP} or a backup",
            file=source,
        )
    return properties


def read_properties(storage: Storage) -> TableProperties:
    """The table's properties, from the backup while a writer is replacing the file or after it crashed doing so."""
    damage: dict[str, CorruptTableError] = {}
    for key in (PROPERTIES, PROPERTIES_BACKUP):
        stored = storage.get(key)
        if stored is None:
            continue
        try:
            return TableProperties.parse(stored.data, key)
        except CorruptTableError as error:
            damage[key] = error
    if damage:
        first = next(iter(damage.values()))
        backup = "damaged, too" if len(damage) == 2 else "not there" if PROPERTIES in damage else "damaged"
        hint = f"restore {PROPERTIES} from a backup or an older version of the object; {PROPERTIES_BACKUP} is {backup}"
        with damage_of_table(storage.uri):
            raise CorruptTableError(first.message, hint=first.hint or hint, **first.details)
    raise TableError(
        f"{storage.uri} is not a Hudi table: it has no {PROPERTIES}",
        hint="check the path, or create the table first",
    )
