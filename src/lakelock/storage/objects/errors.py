"""Turns an object store's answers into lakelock's errors, without the secrets that its messages may hold."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

from lakelock.errors import LakelockError, SettingsError, StorageError, StorageUnavailable
from lakelock.settings.secrets import MASK, masked_uri

_QUERY = re.compile(r"\?[^\s\"')]*")
_LONGEST = 400
_SECRET_ENVIRONMENT = ("AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_ACCESS_KEY_ID", "AZURE_STORAGE_ACCOUNT_KEY")
_CODE = re.compile(r"<Code>(\w+)</Code>")
_DENIED = ("401 Unauthorized", "403 Forbidden")
_NO_BUCKET = ("NoSuchBucket", "ContainerNotFound", "The specified bucket does not exist")


_started_in: int | None = None
"""The process in which obstore made its first request, and with it its threads."""


@dataclass
class Answer:
    """The answer of a call that gave no value; `absent` is None, which is what such a call returns."""

    absent: None = None


@contextmanager
def translated(uri: str, key: str, options: Mapping[str, str], *, writing: bool = False) -> Iterator[Answer]:
    """Run one request. Ends quietly when the object is absent, exists or has changed; otherwise raises `StorageError`."""
    import obstore.exceptions as known

    answer = Answer()
    where = f"{uri}/{key}" if key else uri
    _refuse_after_fork(where)
    try:
        yield answer
    except (known.AlreadyExistsError, known.PreconditionError, known.NotModifiedError):
        return
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
