"""AWS Glue's data catalog, by boto3."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from lakelock.catalogs.base import Column, Entry, TableName, Values
from lakelock.clock import Runtime
from lakelock.errors import CatalogError
from lakelock.providers.connections import aws_client
from lakelock.settings.sections import CatalogSettings
from lakelock.texts import counted

ADDED_AT_ONCE, DROPPED_AT_ONCE = 100, 25
"""The most partitions that Glue takes in one request; it changes as many as it adds."""
ATTEMPTS = 2
_SHARE = 0.9
"""How much of the time that is left a request gets: a client is used until less than that is left, and then made anew."""

_TABLE_FIELDS = (
    "Name", "Description", "Owner", "LastAccessTime", "LastAnalyzedTime", "Retention", "StorageDescriptor", "PartitionKeys",
    "ViewOriginalText", "ViewExpandedText", "TableType", "Parameters", "TargetTable",
)  # fmt: skip
"""What `get_table` answers that `update_table` takes."""
_PARTITION_FIELDS = ("Values", "LastAccessTime", "LastAnalyzedTime", "Parameters")
"""What `get_partitions` answers that `batch_update_partition` takes, besides the storage descriptor."""


class GlueCatalog:
    """The tables of one account and region. All requests together take `catalog.timeout_s` at most."""

    def __init__(self, runtime: Runtime, settings: CatalogSettings) -> None:
        """`CatalogError` if boto3 is missing, or nothing says which region."""
        try:
            import botocore.config  # noqa: F401  whether it is there
        except ImportError as error:
            raise CatalogError(
                "the package boto3, which Glue needs, is not installed", hint="pip install 'lakelock[glue]'"
            ) from error
        self._runtime, self._settings = runtime, settings
        self._until_s = runtime.monotonic_s() + settings.timeout_s
        self._of_catalog = {"CatalogId": settings.catalog_id} if settings.catalog_id else {}
        self._within_s = _SHARE * settings.timeout_s
        self._client = self._client_within(self._within_s)

    def _client_within(self, within_s: float) -> Any:
        """A client each of whose requests ends within this time, with all its attempts."""
        from botocore.config import Config
        from botocore.exceptions import BotoCoreError

        attempt_s = within_s / ATTEMPTS
        connect_s = min(attempt_s / 3, 5.0)
        retries = {"mode": "standard", "total_max_attempts": ATTEMPTS}
        config = Config(connect_timeout=connect_s, read_timeout=attempt_s - connect_s, retries=retries)
        region, endpoint = self._settings.region, self._settings.endpoint_url
        try:
            return aws_client("glue", region=region, endpoint_url=endpoint, config=config)
        except (BotoCoreError, ValueError) as error:
            raise CatalogError(f"Glue cannot be reached: {error}", hint="set catalog.region, or AWS_REGION") from error

    def find(self, name: TableName) -> Entry | None:
        found = self._table(name)
        return None if found is None else _entry(found)

    def create(self, name: TableName, entry: Entry, *, with_database: bool) -> None:
        if with_database and self._ask("get_database", absent=True, Name=name.database) is None:
            self._ask("create_database", there=True, DatabaseInput={"Name": name.database, "Description": "made by lakelock"})
        self._ask("create_table", there=True, DatabaseName=name.database, TableInput=_input(name, {}, entry))

    def update(self, name: TableName, entry: Entry) -> None:
        found = self._table(name)
        if found is None:
            raise CatalogError(f"{name} was dropped in Glue meanwhile", hint="run it again")
        known = {field: found[field] for field in _TABLE_FIELDS if field in found}
        if entry.partition_columns and _types_differ(_entry(found).columns, entry.columns):
            # First: as long as the table has the old types, the next writer does this again.
            self._change_partitions(name, entry)
        self._ask("update_table", DatabaseName=name.database, TableInput=_input(name, known, entry), SkipArchive=True)

    def partitions(self, name: TableName) -> Mapping[Values, str]:
        listed = self._listed(name, with_columns=False)
        return {tuple(each["Values"]): (each.get("StorageDescriptor") or {}).get("Location", "") for each in listed}

    def _listed(self, name: TableName, *, with_columns: bool) -> Iterator[Mapping[str, Any]]:
        given: dict[str, Any] = {"DatabaseName": name.database, "TableName": name.table}
        if not with_columns:
            given["ExcludeColumnSchema"] = True
        while True:
            page = self._ask("get_partitions", **given)
            yield from page["Partitions"]
            if not page.get("NextToken"):
                return
            given["NextToken"] = page["NextToken"]

    def _change_partitions(self, name: TableName, entry: Entry) -> None:
        """Give the partitions the table's columns. Those that have them are passed over, so several runs come to an end."""
        listed = self._listed(name, with_columns=True)
        behind = [each for each in listed if _columns_of(each["StorageDescriptor"].get("Columns") or []) != entry.columns]
        for some in _some(behind, ADDED_AT_ONCE):
            changes = [
                {"PartitionValueList": each["Values"], "PartitionInput": _with_columns(each, entry.columns)} for each in some
            ]
            answer = self._ask("batch_update_partition", DatabaseName=name.database, TableName=name.table, Entries=changes)
            _refuse(answer, "EntityNotFoundException")

    def add(self, name: TableName, entry: Entry, partitions: Mapping[Values, str]) -> None:
        inputs = [
            {"Values": list(values), "StorageDescriptor": _storage({}, entry, where)}
            for values, where in sorted(partitions.items())
        ]
        for some in _some(inputs, ADDED_AT_ONCE):
            answer = self._ask(
                "batch_create_partition", DatabaseName=name.database, TableName=name.table, PartitionInputList=some
            )
            _refuse(answer, "AlreadyExistsException")

    def drop(self, name: TableName, entry: Entry, partitions: Collection[Values]) -> None:
        gone = [{"Values": list(values)} for values in sorted(partitions)]
        for some in _some(gone, DROPPED_AT_ONCE):
            answer = self._ask(
                "batch_delete_partition", DatabaseName=name.database, TableName=name.table, PartitionsToDelete=some
            )
            _refuse(answer, "EntityNotFoundException")

    def close(self) -> None:
        self._client.close()

    def _table(self, name: TableName) -> Mapping[str, Any] | None:
        found = self._ask("get_table", absent=True, DatabaseName=name.database, Name=name.table)
        return None if found is None else found["Table"]

    def _ask(self, call: str, *, absent: bool = False, there: bool = False, **arguments: object) -> Any:
        """The answer; None where what is asked for is missing (`absent`) or what is made is `there`: no error."""
        from botocore.exceptions import BotoCoreError, ClientError

        left_s = self._until_s - self._runtime.monotonic_s()
        if left_s <= 0:
            raise CatalogError("Glue did not answer in time", hint="raise catalog.timeout_s")
        if left_s < self._within_s:
            self._client.close()
            self._within_s = _SHARE * left_s
            self._client = self._client_within(self._within_s)
        try:
            return getattr(self._client, call)(**arguments, **self._of_catalog)
        except ClientError as error:
            code = error.response.get("Error", {}).get("Code", "")
            if (absent and code == "EntityNotFoundException") or (there and code == "AlreadyExistsException"):
                return None
            raise CatalogError(
                f"Glue refused {call}: {error}",
                hint=f"allow glue:{call.title().replace('_', '')} to this role, or correct catalog.*",
            ) from error
        except BotoCoreError as error:
            raise CatalogError(
                f"Glue gave no answer to {call}: {error}", hint="check catalog.region and the credentials"
            ) from error


def _refuse(answer: Mapping[str, Any], but: str) -> None:
    """`CatalogError` for partitions that were refused for another reason than that nothing was left to do."""
    errors = [each["ErrorDetail"] for each in answer.get("Errors") or [] if each["ErrorDetail"].get("ErrorCode") != but]
    if errors:
        raise CatalogError(
            f"Glue refused {counted(len(errors), 'partition')}: {errors[0].get('ErrorMessage', errors[0])}", hint="run it again"
        )


def _some(items: Sequence[Any], size: int) -> Iterator[Sequence[Any]]:
    return (items[start : start + size] for start in range(0, len(items), size))


def _entry(table: Mapping[str, Any]) -> Entry:
    storage = table.get("StorageDescriptor") or {}
    serde = storage.get("SerdeInfo") or {}
    return Entry(
        location=storage.get("Location", ""),
        columns=_columns_of(storage.get("Columns") or []),
        partition_columns=_columns_of(table.get("PartitionKeys") or []),
        parameters=table.get("Parameters") or {},
        input_format=storage.get("InputFormat", ""),
        output_format=storage.get("OutputFormat", ""),
        serde=serde.get("SerializationLibrary", ""),
        serde_parameters=serde.get("Parameters") or {},
    )


def _input(name: TableName, known: Mapping[str, Any], entry: Entry) -> dict[str, Any]:
    return {
        "TableType": "EXTERNAL_TABLE",
        **known,
        "Name": name.table,
        "StorageDescriptor": _storage(known.get("StorageDescriptor") or {}, entry, entry.location),
        "PartitionKeys": _columns(entry.partition_columns, known.get("PartitionKeys")),
        "Parameters": {**(known.get("Parameters") or {}), **entry.parameters},
    }


def _storage(storage: Mapping[str, Any], entry: Entry, location: str) -> dict[str, Any]:
    serde = storage.get("SerdeInfo") or {}
    parameters = {**(serde.get("Parameters") or {}), **entry.serde_parameters}
    return {
        **storage,
        "Columns": _columns(entry.columns, storage.get("Columns")),
        "Location": location,
        "InputFormat": entry.input_format,
        "OutputFormat": entry.output_format,
        "SerdeInfo": {**serde, "SerializationLibrary": entry.serde, "Parameters": parameters},
    }


def _types_differ(known: Sequence[Column], wanted: Sequence[Column]) -> bool:
    """Whether a column that was there has another type now. A new one need not be among those of a partition."""
    types = {column.name: column.type for column in known}
    return any(types.get(column.name, column.type) != column.type for column in wanted)


def _with_columns(partition: Mapping[str, Any], columns: Sequence[Column]) -> dict[str, Any]:
    known = {field: partition[field] for field in _PARTITION_FIELDS if field in partition}
    storage = partition["StorageDescriptor"]
    return {**known, "StorageDescriptor": {**storage, "Columns": _columns(columns, storage.get("Columns"))}}


def _columns(columns: Sequence[Column], known: Sequence[Mapping[str, Any]] | None) -> list[dict[str, Any]]:
    """The columns, with what others have noted about those of them that are `known`, such as a comment."""
    notes = {each.get("Name"): each for each in known or ()}
    return [{**notes.get(column.name, {}), "Name": column.name, "Type": column.type} for column in columns]


def _columns_of(columns: Sequence[Mapping[str, str]]) -> tuple[Column, ...]:
    return tuple(Column(each.get("Name", ""), each.get("Type", "")) for each in columns)
