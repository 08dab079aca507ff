"""The document of data locks in Redis or Valkey: one hash, changed by a script that compares and swaps as one step."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

from lakelock.data_locks.document.register import Register, Version
from lakelock.data_locks.lock_table import LockTable
from lakelock.providers.base import Opening
from lakelock.providers.redis.address import RedisAddress
from lakelock.providers.redis.client import RedisClient, Subscription
from lakelock.providers.redis.lock import key_of
from lakelock.providers.redis.options import RedisOptions
from lakelock.providers.redis.scripts import Script

READ = Script(
    """
local now = redis.call('time')
return {redis.call('hget', KEYS[1], 'tag') or '', redis.call('hget', KEYS[1], 'data') or '',
        now[1] * 1000 + math.floor(now[2] / 1000)}
"""
)
""" -> tag and document, both empty where there is none, and the server's clock in ms."""

SWAP = Script(
    """
if (redis.call('hget', KEYS[1], 'tag') or '') ~= ARGV[1] then return 0 end
redis.call('hset', KEYS[1], 'tag', ARGV[2], 'data', ARGV[3])
return 1
"""
)
"""tag before ('' for none), new tag, new document -> 1, or 0 when the tag is another one."""

WAKE = Script("for _, grant in ipairs(ARGV) do redis.call('publish', KEYS[1] .. ':granted:' .. grant, 'granted') end")
"""grants -> nothing; each listens to a channel of its own."""


@dataclass(frozen=True)
class DocumentKey:
    """The one key of the document, with the hash tag of the commit lock, so that a cluster keeps both on one server."""

    key: str

    @property
    def names(self) -> tuple[str, ...]:
        return (f"{{{self.key}}}:data-locks",)

    def channel(self, grant: str) -> str:
        return f"{self.names[0]}:granted:{grant}"


class RedisRegister(Register):
    """One hash. Its tag is random, so that a document that came back after a failover is never taken for another one."""

    def __init__(self, opening: Opening) -> None:
        self._address = RedisAddress.parse(opening.uri)
        self._key = DocumentKey(self._address.key or key_of(opening.storage.uri))
        self._runtime, longest_s = opening.runtime, opening.settings.data_locks.lease_s / 3
        options = RedisOptions.of(opening.settings.lock_options, self._address)
        self._client = RedisClient(self._address, options, self._key, opening.runtime, longest_s=longest_s)

    @property
    def identity(self) -> str:
        return self._address.identity(self._key.names[0])

    def read(self) -> Version:
        """The document. One that is not there, or was lost, begins above all tokens that this server can have given."""
        tag, data, now_ms = self._run(READ)
        return Version(data if tag else LockTable(latest=now_ms).to_bytes(), tag.decode())

    def swap(self, data: bytes, before: Version | None) -> Version | None:
        new = Version(data, self._runtime.uuid())
        return new if self._run(SWAP, before.tag if before else "", new.tag, data.decode()) else None

    def listen(self, grant: str) -> Subscription:
        return self._client.listen(self._key.channel(grant))

    def wake(self, grants: Collection[str]) -> None:
        self._client.run(WAKE, *grants)

    def close(self) -> None:
        self._client.close()

    def _run(self, script: Script, *arguments: str) -> Any:
        """The answer. Where replicas are asked for, only what they have counts, even for reads."""
        answer, replicas = self._client.run_as_asked(script, *arguments)
        self._client.ensure_replicated(replicas, f"the data locks at {self._address.place}")
        return answer
