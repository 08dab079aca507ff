"""The XML API of Google Cloud Storage over its JSON API: what obstore asks, and fake-gcs-server does not answer.

Reads and deletions are passed on. Writes with a condition, uploads in parts and listings become requests of the JSON API, which
says the same (https://cloud.google.com/storage/docs/xml-api/reference-methods). The conditions are judged by the server.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any
from urllib.parse import parse_qsl, unquote, urlencode, urlsplit
from xml.sax.saxutils import escape

from tests.servers.http_front import Answer, Front, in_threads

_HOST = "storage.googleapis.com"
"""By this name the server knows requests of the XML API."""
_BOUNDARY = "part-of-an-upload"


class _Uploads:
    """The parts of uploads that are not complete."""

    def __init__(self) -> None:
        self._names = map(str, itertools.count(1))
        self._parts: dict[str, dict[int, bytes]] = {}

    def begin(self) -> str:
        name = next(self._names)
        self._parts[name] = {}
        return name

    def add(self, name: str, number: int, data: bytes) -> None:
        self._parts[name][number] = data

    def end(self, name: str) -> bytes:
        parts = self._parts.pop(name)
        return b"".join(parts[number] for number in sorted(parts))


class _Request(Front):
    uploads: _Uploads

    def answered(self) -> Answer:
        bucket, name, query = self._asked()
        data = self.body()
        if self.command == "GET" and query.get("list-type") == "2" and not name:
            return self._listed(bucket, query)
        if self.command == "DELETE" and "uploadId" in query:
            self.uploads.end(query["uploadId"])
            return Answer(204)
        if self.command == "PUT" and "uploadId" in query:
            self.uploads.add(query["uploadId"], int(query["partNumber"]), data)
            return Answer(200, headers={"ETag": f'"{query["partNumber"]}"'})
        if self.command == "PUT":
            return self._stored(bucket, name, data)
        if self.command == "POST" and "uploads" in query:
            about = f"<Bucket>{bucket}</Bucket><Key>{escape(name)}</Key><UploadId>{self.uploads.begin()}</UploadId>"
            return _xml("InitiateMultipartUploadResult", about)
        if self.command == "POST":
            made = self._stored(bucket, name, self.uploads.end(query["uploadId"]))
            about = f"<Bucket>{bucket}</Bucket><Key>{escape(name)}</Key><ETag>{made.headers.get('ETag')}</ETag>"
            return made if made.status != 200 else _xml("CompleteMultipartUploadResult", about, made.headers)
        return self._passed_on()

    def _asked(self) -> tuple[str, str, dict[str, str]]:
        """The bucket, the object and the query of this request."""
        url = urlsplit(self.path)
        bucket, _, name = url.path.lstrip("/").partition("/")
        return unquote(bucket), unquote(name), dict(parse_qsl(url.query, keep_blank_values=True))

    def _passed_on(self) -> Answer:
        return self.ask(self.command, self.path, headers={**self.passed_headers(), "Host": _HOST})

    def _stored(self, bucket: str, name: str, data: bytes) -> Answer:
        """Make an object, if the condition of this request holds."""
        query = {"uploadType": "multipart"}
        if (generation := self.headers.get("x-goog-if-generation-match")) is not None:
            query["ifGenerationMatch"] = generation
        separator, kind = f"--{_BOUNDARY}", self.headers.get("Content-Type") or "application/octet-stream"
        about = f"{separator}\r\nContent-Type: application/json\r\n\r\n{json.dumps({'name': name})}\r\n"
        start = f"{about}{separator}\r\nContent-Type: {kind}\r\n\r\n".encode()
        headers = {"Content-Type": f"multipart/related; boundary={_BOUNDARY}"}
        path = f"/upload/storage/v1/b/{bucket}/o?{urlencode(query)}"
        made = self.ask("POST", path, start + data + f"\r\n{separator}--\r\n".encode(), headers)
        if made.status != 200:
            return made
        found = json.loads(made.body)
        return Answer(200, headers={"ETag": f'"{found["etag"]}"', "x-goog-generation": str(found["generation"])})

    def _listed(self, bucket: str, query: Mapping[str, str]) -> Answer:
        asked = {"maxResults": query.get("max-keys", "1000")}
        for theirs, ours in (("prefix", "prefix"), ("delimiter", "delimiter"), ("continuation-token", "pageToken")):
            if theirs in query:
                asked[ours] = query[theirs]
        if "start-after" in query:
            asked["startOffset"] = query["start-after"] + "\0"
        found = self.ask("GET", f"/storage/v1/b/{bucket}/o?{urlencode(asked)}")
        if found.status != 200:
            return found
        listed = json.loads(found.body)
        items = [
            f"<Contents><Key>{escape(item['name'])}</Key><LastModified>{item['updated']}</LastModified>"
            f'<ETag>"{item["etag"]}"</ETag><Size>{item["size"]}</Size></Contents>'
            for item in listed.get("items", ())
        ]
        folders = [f"<CommonPrefixes><Prefix>{escape(each)}</Prefix></CommonPrefixes>" for each in listed.get("prefixes", ())]
        after = listed.get("nextPageToken")
        more = f"<NextContinuationToken>{escape(after)}</NextContinuationToken>" if after else ""
        return _xml("ListBucketResult", "".join((*items, *folders, more)))


def _xml(name: str, content: str, headers: Mapping[str, str] | None = None) -> Answer:
    body = f'<?xml version="1.0" encoding="UTF-8"?><{name}>{content}</{name}>'.encode()
    return Answer(200, body, {"Content-Type": "application/xml", **(headers or {})})


@contextmanager
def xml_api(json_endpoint: str) -> Iterator[str]:
    """The XML API in threads of this process; its endpoint."""
    made: dict[str, Any] = {"behind": urlsplit(json_endpoint).netloc, "uploads": _Uploads()}
    with in_threads(type("Request", (_Request,), made)) as endpoint:
        yield endpoint
