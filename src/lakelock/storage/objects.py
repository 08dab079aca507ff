"""S3, Google Cloud Storage and Azure as storage, through obstore.

Conditional writes are the service's own (If-None-Match, If-Match, generations). obstore repeats a request that failed
with a 5xx or a dropped connection, so "already exists" may be the answer to its own first attempt: a caller that must
know reads back (`storage.create`), and "no answer" is never taken for "not done". Answers become lakelock's errors
without the secrets that the messages may hold. Addresses are checked before obstore has them: one that is no URL would
end it with a panic of its own.

Data files are Python files: ranges are read on demand, parts are uploaded while more is written.

Listings are in the order of keys, also where the service's are not. S3 and its like, Google Cloud Storage and Azure list
in that order and can begin after a key. A directory bucket of S3 (Express One Zone) does neither, and knows no prefix but
a folder, so each folder is listed as a whole and sorted. Source:
https://docs.aws.amazon.com/AmazonS3/latest/userguide/s3-express-differences.html
"""

from __future__ import annotations

import io
import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from types import TracebackType
from typing import IO, TYPE_CHECKING, Protocol, TypedDict, cast
from urllib.parse import urlsplit

from lakelock.clock import Runtime, SystemRuntime
from lakelock.errors import LakelockError, SettingsError, StorageError, StorageUnavailable, StorageUnsafe
from lakelock.settings.secrets import MASK, masked_uri
from lakelock.storage.base import METADATA_FOLDER, Listed, Stored, checked, checked_prefix, is_past, is_shown, range_reader

if TYPE_CHECKING:
    import obstore
    from _typeshed import ReadableBuffer
    from obstore import ObjectMeta
    from obstore.store import ObjectStore


PAGE = 1000
"""How many keys of a listing are handled together: as many as one answer of the service holds."""
_DELETED_AT_ONCE = {"s3": PAGE, "gs": 10, "az": 256, "abfs": 256}
"""How many objects one deletion names: as many as one request can, or for Google's as many as obstore sends at once."""
COLLECTIONS = 8
"""How often a folder is collected again because something was removed from it meanwhile."""
_DIRECTORY_BUCKET = "--x-s3"
"""How the names of S3's directory buckets end, and no others."""
_METADATA = f"{METADATA_FOLDER}/"
_PAST_METADATA = f"{_METADATA}\U0010ffff"


def is_directory_bucket(uri: str) -> bool:
    """Whether a canonical URI names a place in one of S3's directory buckets."""
    scheme, _, rest = uri.partition("://")
    return scheme == "s3" and rest.partition("/")[0].endswith(_DIRECTORY_BUCKET)


def as_listed(store: ObjectStore, folder: str, start_after: str) -> Iterator[Listed]:
    """Every object, except that a listing that did not ask for the metadata folder leaves it after one page."""
    import obstore

    offset: str | None = start_after or None
    while True:
        jump = False
        for page in obstore.list(store, folder or None, offset=offset, chunk_size=PAGE):
            yield from _of(page)
            if not folder and page and page[-1]["path"].startswith(_METADATA):
                jump = True
                break
        if not jump:
            return
        offset = _PAST_METADATA


def without_folders(found: Iterable[Listed], folder: str) -> Iterator[Listed]:
    """Leave out the empty objects that Hadoop's connectors and consoles make for folders, with a name that ends with a slash.

    obstore shows such a name without its slash, by which it was sorted. So it is known by its place: it is the folder itself,
    comes after what is greater than it, or right before what is in it. One of a folder without objects is not known from an
    empty object.
    """
    waiting: Listed | None = None
    last = ""
    for each in found:
        if waiting is not None and not each.key.startswith(f"{waiting.key}/"):
            yield waiting
        waiting = None
        if each.size_bytes:
            yield each
        elif each.key == folder or each.key < last < f"{each.key}/":
            last = f"{each.key}/"
            continue
        else:
            waiting = each
        last = each.key
    if waiting is not None:
        yield waiting


def sorted_here(store: ObjectStore, folder: str, start_after: str) -> Iterator[Listed]:
    """Every object, or those outside the metadata folder if that was not asked for. One folder at a time is held and sorted."""
    import obstore

    def collected() -> Iterator[Listed]:
        return (each for page in obstore.list(store, folder, chunk_size=PAGE) for each in _of(page))

    if folder:
        in_metadata = f"{folder}/".startswith(_METADATA)
        found = of_one_moment(collected, PAGE) if in_metadata else collected()
        yield from sorted(found, key=lambda each: each.key)
        return
    top = obstore.list_with_delimiter(store)
    single = {each.key: each for each in _of(top["objects"])}
    folders = {f"{name}/" for name in top["common_prefixes"]} - {_METADATA}
    for key in sorted({*single, *folders}):
        if key in single:
            yield single[key]
        elif not is_past(key, start_after):
            yield from sorted_here(store, key.rstrip("/"), start_after)


def of_one_moment(collect: Callable[[], Iterable[Listed]], page: int) -> list[Listed]:
    """What a folder without order shows as if it were listed at once: collected once, or more often if it has several pages.

    In the order of keys a listing of several pages has no gaps: of numbers that are put one after the other it shows all up to
    some one. Without order it may leave out one and show the next, and miss that something was removed. So it is collected
    again. If that shows everything that was there before, nothing was removed in between, and up to the last key of before
    nothing is missing that was put before that key.
    """
    found = list(collect())
    for _ in range(COLLECTIONS):
        if len(found) <= page:
            return found
        again, last = list(collect()), max(each.key for each in found)
        if {each.key for each in found} <= {each.key for each in again}:
            return [each for each in again if each.key <= last]
        found = again
    raise StorageUnavailable("objects are removed faster than their folder can be listed", hint="retry")


def _of(page: Iterable[ObjectMeta]) -> Iterator[Listed]:
    return (Listed(meta["path"], meta["size"], written_ms(meta["last_modified"])) for meta in page)


def written_ms(when: datetime) -> int:
    """A service's time of writing, as lakelock counts time."""
    return round(when.timestamp() * 1000)


_ENDINGS = ("endpoint", "endpoint_url", "endpoint_url_s3")
_FLAGS = ("use_fabric_endpoint", "azure_use_fabric_endpoint")
_VARIABLES = {
    "s3": ("AWS_ENDPOINT", "AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3"),
    "az": ("AZURE_ENDPOINT", "AZURE_STORAGE_ENDPOINT"),
    "abfs": ("AZURE_ENDPOINT", "AZURE_STORAGE_ENDPOINT"),
}
"""Those that obstore reads by itself."""


def check_endpoints(uri: str, options: Mapping[str, str]) -> None:
    """`SettingsError` for an option or variable of this store that is not the URL of a server."""
    for name, address in _endpoints(uri.partition(":")[0], options).items():
        if not _is_url(address):
            raise SettingsError(
                f"{name} is {masked_uri(address)!r}, which is not the URL of a server",
                hint="write it with its scheme, such as http://localhost:9000 or https://s3.example.com",
                key=name,
            )


def _endpoints(scheme: str, options: Mapping[str, str]) -> dict[str, str]:
    """The addresses by where they are given: the options' go first."""
    named = [name for name in options if name.lower().endswith(_ENDINGS) and name.lower() not in _FLAGS]
    if named:
        return {f"storage.{name}": options[name] for name in named}
    return {variable: os.environ[variable] for variable in _VARIABLES.get(scheme, ()) if variable in os.environ}


def _is_url(address: str) -> bool:
    try:
        parts = urlsplit(address)
        is_server = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
        return is_server and not any(character.isspace() for character in address)
    except ValueError:
        return False


_QUERY = re.compile(r"\?[^\s\"')]*")
_LONGEST = 400
_SECRET_ENVIRONMENT = ("AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_ACCESS_KEY_ID", "AZURE_STORAGE_ACCOUNT_KEY")
_CODE = re.compile(r"<Code>(\w+)</Code>")
_DENIED = ("401 Unauthorized", "403 Forbidden")
_CONFLICTS = ("ConditionalRequestConflict", "OperationAborted")
"""S3's codes of a request that was not done because another one was under way: they do not tell whether its condition holds."""
_CONFLICT_TRIES, _CONFLICT_PAUSE_S = 6, 0.05
_NO_BUCKET = ("NoSuchBucket", "ContainerNotFound", "The specified bucket does not exist")

_started_in: int | None = None
"""The process in which obstore made its first request, and with it its threads."""


@dataclass
class Answer:
    """The answer of a call that gave no value; `absent` is None, which is what such a call returns."""

    absent: None = None


@contextmanager
def translated(
    uri: str, key: str, options: Mapping[str, str], *, writing: bool = False, conditional: bool = False
) -> Iterator[Answer]:
    """Run one request. Ends quietly when the object is absent, or the condition of the request does not hold.

    Otherwise raises `StorageError`. A request without a condition that is refused with 409 or 412, as by Azure for an archived
    or leased blob, was not done, and the object is not absent.
    """
    import obstore.exceptions as known

    answer = Answer()
    where = f"{uri}/{key}" if key else uri
    _refuse_after_fork(where)
    try:
        yield answer
    except (known.InvalidPathError, known.NotSupportedError, NotImplementedError) as error:
        raise StorageError(f"{where}: {cleaned(error, options)}", hint="check the key and the storage options") from None
    except (ValueError, TypeError) as error:
        if isinstance(error, LakelockError):
            raise
        # obstore's words for a key that no store takes, such as one with a control character.
        raise StorageError(
            f"{uri}: the key {key!r} cannot be used: {cleaned(error, options)}",
            hint="object stores take no control characters: check partition values, or make the table with its folders encoded "
            "(hoodie.datasource.write.partitionpath.urlencode=true)",
        ) from None
    except (known.BaseError, OSError) as error:
        text, absent = str(error), isinstance(error, (known.NotFoundError, FileNotFoundError))
        unmet = isinstance(error, (known.AlreadyExistsError, known.PreconditionError, known.NotModifiedError))
        conflict = unmet and any(code in text for code in _CONFLICTS)
        if conditional and unmet and not conflict:
            return
        if any(sign in text for sign in _NO_BUCKET) or (absent and writing):
            raise StorageError(f"{where}: there is no such bucket or container", hint="create it, or check the URI") from None
        if absent:
            return
        denied = isinstance(error, (known.PermissionDeniedError, known.UnauthenticatedError))
        if denied or any(sign in text for sign in _DENIED):
            raise StorageError(
                f"{where}: access denied: {cleaned(error, options)}",
                hint="check the credentials and the right to list, read, write and delete under this prefix",
            ) from None
        raise StorageUnavailable(
            f"{where}: no definite answer: {cleaned(error, options)}",
            hint="check the endpoint and the network, then retry",
            conflict=conflict,
        ) from None


@contextmanager
def connecting(uri: str, options: Mapping[str, str]) -> Iterator[None]:
    """Build a client, or raise `SettingsError` that says which option is wrong."""
    try:
        from obstore.exceptions import BaseError
    except ImportError as error:
        raise SettingsError(
            f"{uri} needs the package obstore, which cannot be imported: {error}", hint="pip install obstore"
        ) from error
    try:
        yield
    except (BaseError, ValueError, TypeError) as error:
        raise SettingsError(
            f"{uri} cannot be opened: {cleaned(error, options)}",
            hint="check the storage options (storage.endpoint, storage.region, storage.access_key_id, ...)",
        ) from None


def _refuse_after_fork(where: str) -> None:
    """Raise `StorageError` in a child that was forked after a request: it would wait for obstore's threads, which it lacks."""
    global _started_in
    _started_in = _started_in or os.getpid()
    if _started_in != os.getpid():
        raise StorageError(
            f"{where}: this process was forked from one that has used object storage, whose threads it does not have",
            hint='start processes by spawn: multiprocessing.get_context("spawn")',
        )


def cleaned(error: BaseException, options: Mapping[str, str]) -> str:
    """The first line of a foreign error and the service's own code, without option values, secrets and URL queries."""
    full = str(error).strip()
    code = _CODE.search(full)
    text = (full.splitlines() or [type(error).__name__])[0].partition("<")[0] + (f"({code[1]})" if code else "")
    for name in _SECRET_ENVIRONMENT:
        if len(os.environ.get(name, "")) > 3:
            text = text.replace(os.environ[name], MASK)
    for name, value in options.items():
        if len(value) > 3 and not name.endswith(("endpoint", "region")):
            text = text.replace(value, MASK)
    return masked_uri(_QUERY.sub(f"?{MASK}", text))[:_LONGEST]


PART_BYTES = 10 << 20


def open_reader(store: ObjectStore, key: str, uri: str, options: Mapping[str, str], size_bytes: int = 0) -> IO[bytes]:
    """A seekable reader of one object; `StorageError` when there is none. One request unless the size is known."""
    import obstore

    def fetch(start: int, length: int) -> ReadableBuffer:
        with translated(uri, key, options):
            return obstore.get_range(store, key, start=start, length=length)
        raise StorageError(f"{uri}/{key} was removed while it was read", hint="read the table again", missing=True)

    with translated(uri, key, options):
        return range_reader(size_bytes or obstore.head(store, key)["size"], fetch)
    raise StorageError(f"{uri}/{key}: no such object", hint="check the path; another process may have removed it", missing=True)


class _Upload(Protocol):
    """obstore's `WritableFile`. It has no `abort`: leaving a `with` block by an exception aborts the upload."""

    def write(self, data: bytes, /) -> int: ...

    def close(self) -> None: ...

    def __exit__(self, kind: type[BaseException], error: BaseException, trace: None) -> object: ...


class ObjectWriter(io.RawIOBase):
    """Uploads one object; it exists once `close` has returned, and not at all after an exception in a `with` block.

    The parts of an upload that was not finished are removed: a store keeps and bills them until the upload is aborted.
    """

    def __init__(self, upload: _Upload, key: str, uri: str, options: Mapping[str, str]) -> None:
        self._upload, self._key, self._uri, self._options = upload, key, uri, options
        self._position, self._abandoned = 0, False

    @classmethod
    def open(cls, store: ObjectStore, key: str, uri: str, options: Mapping[str, str]) -> IO[bytes]:
        """A writer whose parts are sent while more is written."""
        import obstore

        with translated(uri, key, options, writing=True):
            upload = obstore.open_writer(store, key, buffer_size=PART_BYTES)
            return cast(IO[bytes], cls(cast(_Upload, upload), key, uri, options))
        raise StorageError(f"{uri}/{key} cannot be written", hint="check the bucket and the access rights")

    def writable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._position

    def write(self, data: ReadableBuffer, /) -> int:
        view = memoryview(data).cast("B")
        with translated(self._uri, self._key, self._options, writing=True):
            self._upload.write(bytes(view))
            self._position += len(view)
            return len(view)
        raise StorageError(f"{self._uri}/{self._key} cannot be written", hint="check the bucket and the access rights")

    def close(self) -> None:
        if self.closed:
            return
        super().close()
        if self._abandoned:
            self._abort()
            return
        with translated(self._uri, self._key, self._options, writing=True):
            self._upload.close()

    def _abort(self) -> None:
        """Abort if the store can; the caller already has the error that matters."""
        with suppress(Exception):
            self._upload.__exit__(StorageError, StorageError("the upload was given up"), None)

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._abandoned = kind is not None
        self.close()

    def __del__(self) -> None:
        # A file that was not closed is not finished: garbage collection must not publish it.
        self._abandoned = True
        if not sys.is_finalizing():
            super().__del__()


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

    def __init__(
        self,
        uri: str,
        options: Mapping[str, str] | None = None,
        *,
        runtime: Runtime | None = None,
        within_s: float | None = None,
    ) -> None:
        self._uri, self._runtime = uri, runtime or SystemRuntime()
        self._options = dict(options or {})
        self._store = _open_store(uri, self._options, within_s)
        self._list_all = sorted_here if is_directory_bucket(uri) else as_listed

    @property
    def uri(self) -> str:
        return self._uri

    @property
    def listing_seeks(self) -> bool:
        return not is_directory_bucket(self._uri)

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
            for listed in without_folders(self._list_all(self._store, folder, start_after), folder):
                if listed.key < before:
                    raise StorageUnsafe(
                        f"{self._uri} does not list objects in the order of their keys",
                        hint="use a service that lists as S3 does, or a directory bucket of S3 by its full name",
                    )
                before = listed.key
                if listed.key > start_after and is_shown(listed.key, folder):
                    yield listed

    def delete(self, keys: Iterable[str]) -> None:
        self._delete([checked(key) for key in keys])

    def delete_folder(self, folder: str) -> None:
        import obstore

        with translated(self._uri, folder, self._options):
            # Listed first: no store promises how an unordered listing goes on when what it has listed is gone.
            pages = obstore.list(self._store, checked_prefix(folder), chunk_size=PAGE)
            self._delete([meta["path"] for page in pages for meta in page if meta["path"] != folder])

    def open_input(self, key: str, *, size_bytes: int = 0) -> IO[bytes]:
        return open_reader(self._store, checked(key), self._uri, self._options, size_bytes)

    def open_output(self, key: str) -> IO[bytes]:
        return ObjectWriter.open(self._store, checked(key), self._uri, self._options)

    def _delete(self, keys: Sequence[str]) -> None:
        """Remove these objects. Where one is missing, Google's and Azure's stores keep others: then each is removed alone."""
        import obstore

        at_once = _DELETED_AT_ONCE[self._uri.partition(":")[0]]
        for start in range(0, len(keys), at_once):
            some = keys[start : start + at_once]
            with translated(self._uri, some[0], self._options):
                obstore.delete(self._store, some)
                continue
            for key in some:
                with translated(self._uri, key, self._options):
                    obstore.delete(self._store, key)

    def _put(self, key: str, data: bytes, mode: obstore.PutMode) -> str | None:
        """Put it again while S3 says that another request is under way; obstore itself does so for a replacement only."""
        for turn in range(_CONFLICT_TRIES - 1):
            try:
                return self._put_once(key, data, mode)
            except StorageUnavailable as error:
                if not error.details.get("conflict") or not isinstance(mode, str):
                    raise
            self._runtime.sleep(_CONFLICT_PAUSE_S * 2**turn * (0.5 + 0.5 * self._runtime.random()))
        return self._put_once(key, data, mode)

    def _put_once(self, key: str, data: bytes, mode: obstore.PutMode) -> str | None:
        import obstore

        checked(key)
        with translated(self._uri, key, self._options, writing=True, conditional=mode != "overwrite") as answer:
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
            elif not host.endswith(".core.windows.net") and not _endpoints(scheme, options):
                config["endpoint"] = f"https://{host.replace('.dfs.', '.blob.', 1)}"  # obstore knows Azure's public cloud only
        return AzureStore(container, config=config or None, **shared)  # type: ignore[arg-type]
    raise AssertionError("unreachable")


def _truth(value: str) -> str | bool:
    return value.lower() == "true" if value.lower() in ("true", "false") else value
