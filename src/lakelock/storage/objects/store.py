"""S3, Google Cloud Storage and Azure as storage, through obstore.

Conditional writes are the service's own (If-None-Match, If-Match, generations). obstore repeats a request that failed with a
5xx or a dropped connection, so "already exists" may be the answer to its own first attempt: whoever must know reads back
(`storage.create`), and "no answer" is never taken for "not done".
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from datetime import timedelta
from typing import IO, TYPE_CHECKING, TypedDict, cast

from lakelock.errors import StorageUnsafe
from lakelock.storage.base import Listed, Stored
from lakelock.storage.keys import checked, checked_prefix, is_shown
from lakelock.storage.objects.endpoints import check_endpoints
from lakelock.storage.objects.errors import connecting, translated
from lakelock.storage.objects.files import ObjectWriter, open_reader
from lakelock.storage.objects.listing import PAGE, as_listed, is_directory_bucket, sorted_here, written_ms

if TYPE_CHECKING:
    import obstore
    from obstore.store import ObjectStore

_CLIENT_OPTIONS = (
    "allow_http",
    "allow_invalid_certificates",
    "connect_timeout",
    "pool_idle_timeout",
    "pool_max_idle_per_host",
    "proxy_ca_certificate",
    "proxy_excludes",
    "proxy_url",
    "read_timeout",
    "root_certificate",
    "timeout",
    "user_agent",
)


class _Retrying(TypedDict):
    max_retries: int
    retry_timeout: timedelta


_RETRIES, _RETRY_S = 5, 60.0


class ObjectStorage:
    """Objects under a prefix of one bucket or container. `options` are obstore's, by name; none of them is ever shown.

    `within_s`: how long to wait for an answer, and to repeat a request; an option `timeout` is taken as it is.
    """

    def __init__(self, uri: str, options: Mapping[str, str] | None = None, *, within_s: float | None = None) -> None:
        self._uri = uri
        self._options = dict(options or {})
        self._store = _open_store(uri, self._options, within_s)
        self._list_all = sorted_here if is_directory_bucket(uri) else as_listed

    @property
    def uri(self) -> str:
        return self._uri

    def get(self, key: str) -> Stored | None:
        import obstore

        checked(key)
        with translated(self._uri, key, self._options) as answer:
            found = obstore.get(self._store, key)
            meta = found.meta
            return Stored(bytes(found.bytes()), _etag(meta), written_ms(meta["last_modified"]))
        return answer.absent

    def put_if_absent(self, key: str, data: bytes, *, durable: bool = True) -> str | None:
        return self._put(key, data, "create")

    def put_if_match(self, key: str, data: bytes, etag: str) -> str | None:
        version, space, e_tag = etag.partition(" ")
        checked(key)
        if not space:
            return None  # not a version that this storage ever issued
        marks: obstore.UpdateVersion = {}
        if e_tag:
            marks["e_tag"] = e_tag
        if version:
            marks["version"] = version
        return self._put(key, data, marks)

    def put(self, key: str, data: bytes) -> None:
        self._put(key, data, "overwrite")

    def list(self, prefix: str, *, start_after: str = "") -> Iterator[Listed]:
        folder = checked_prefix(prefix)
        before = ""
        with translated(self._uri, folder, self._options):
            for listed in self._list_all(self._store, folder, start_after):
                if listed.key < before:
                    raise StorageUnsafe(
                        f"{self._uri} does not list objects in the order of their keys",
                        hint="use a service that lists as S3 does, or a directory bucket of S3 by its full name",
                    )
                before = listed.key
                if listed.key > start_after and is_shown(listed.key, folder):
                    yield listed

    def delete(self, keys: Iterable[str]) -> None:
        import obstore

        gone = [checked(key) for key in keys]
        if gone:
            with translated(self._uri, gone[0], self._options):
                obstore.delete(self._store, gone)

    def delete_folder(self, folder: str) -> None:
        import obstore

        with translated(self._uri, folder, self._options):
            # Listed first: nobody promises how an unordered listing goes on when what it has listed is gone.
            pages = obstore.list(self._store, checked_prefix(folder), chunk_size=PAGE)
            gone = [meta["path"] for page in pages for meta in page]
            for start in range(0, len(gone), PAGE):
                obstore.delete(self._store, gone[start : start + PAGE])

    def open_input(self, key: str, *, size_bytes: int = 0) -> IO[bytes]:
        return open_reader(self._store, checked(key), self._uri, self._options, size_bytes)

    def open_output(self, key: str) -> IO[bytes]:
        return ObjectWriter.open(self._store, checked(key), self._uri, self._options)

    def _put(self, key: str, data: bytes, mode: obstore.PutMode) -> str | None:
        import obstore

        checked(key)
        with translated(self._uri, key, self._options, writing=True) as answer:
            return _etag(obstore.put(self._store, key, data, mode=mode, use_multipart=False))
        return answer.absent


class _Version(TypedDict, total=False):
    e_tag: str | None
    version: str | None


def _etag(meta: object) -> str:
    """Both marks of a version in one string: services compare by one or the other."""
    marks = cast(_Version, meta)
    return f"{marks.get('version') or ''} {marks.get('e_tag') or ''}"


def _open_store(uri: str, options: Mapping[str, str], within_s: float | None) -> ObjectStore:
    """The obstore client of a canonical URI; nothing is contacted."""
    check_endpoints(uri, options)
    with connecting(uri, options):
        from obstore.store import AzureStore, GCSStore, S3Store

        scheme, _, rest = uri.partition("://")
        bucket, _, prefix = rest.partition("/")
        client = {name: _truth(value) for name, value in options.items() if name in _CLIENT_OPTIONS}
        if within_s is not None:
            client.setdefault("timeout", f"{round(within_s * 1000)}ms")
        retries: _Retrying = {"max_retries": _RETRIES, "retry_timeout": timedelta(seconds=within_s or _RETRY_S)}
        config = {name: value for name, value in options.items() if name not in _CLIENT_OPTIONS}
        shared = {"prefix": prefix or None, "client_options": client or None, "retry_config": retries}
        if scheme == "s3":
            if is_directory_bucket(uri):
                config.setdefault("s3_express", "true")  # its zone's own address, and a session instead of the keys
            return S3Store(bucket, config=config or None, **shared)  # type: ignore[arg-type]
        if scheme == "gs":
            return GCSStore(bucket, config=config or None, **shared)  # type: ignore[arg-type]
        container, _, host = bucket.partition("@")
        if host:
            config.setdefault("account_name", host.partition(".")[0])
            if host.endswith(".fabric.microsoft.com"):
                config.setdefault("use_fabric_endpoint", "true")
        return AzureStore(container, config=config or None, **shared)  # type: ignore[arg-type]
    raise AssertionError("unreachable")


def _truth(value: str) -> str | bool:
    return value.lower() == "true" if value.lower() in ("true", "false") else value
