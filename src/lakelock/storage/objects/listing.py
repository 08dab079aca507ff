"""Listing objects in the order of their keys, also where the service does not.

S3 and its like, Google Cloud Storage and Azure list in that order and can begin after a key. A directory bucket of S3 (Express
One Zone) does neither, and knows no prefix but a folder, so each folder is listed as a whole and sorted. Source:
https://docs.aws.amazon.com/AmazonS3/latest/userguide/s3-express-differences.html
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from datetime import datetime
from typing import TYPE_CHECKING

from lakelock.errors import StorageUnavailable
from lakelock.storage.base import Listed
from lakelock.storage.keys import METADATA_FOLDER, is_past

if TYPE_CHECKING:
    from obstore import ObjectMeta
    from obstore.store import ObjectStore

PAGE = 1000
"""How many keys of a listing are handled together: as many as one answer of the service holds."""
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
