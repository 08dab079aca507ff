"""Who is writing: the identity that locks, claims, decisions and errors carry, so that no writer is anonymous."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields

from lakelock.clock import Runtime, process_identity
from lakelock.version import version


@dataclass(frozen=True)
class WriterIdentity:
    """One writer. Its `writer_id` is unique forever; the other fields are for people.

    `writer_id` is random and generated anew in every process (also after a fork), never taken from configuration.
    `application` is a name that the user chose, or the name and id of Spark's application. `version` is lakelock's, empty
    for a writer that did not tell.
    """

    writer_id: str
    application: str
    host: str
    pid: int
    user: str
    version: str = ""

    @classmethod
    def of_this_process(cls, runtime: Runtime, application: str = "") -> WriterIdentity:
        host, pid, user = process_identity()
        return cls(runtime.uuid(), application or f"python-{pid}", host, pid, user, version())

    def as_dict(self) -> dict[str, str | int]:
        """What a record has of it; a `version` that is not known is left out."""
        return {name: getattr(self, name) for name in _FIELDS if name != "version" or self.version}

    @classmethod
    def from_dict(cls, values: Mapping[str, object]) -> WriterIdentity:
        """Read what `as_dict` wrote; unknown fields are ignored, missing ones are empty."""
        writer_id, application, host, user, version = (
            str(values.get(name, "")) for name in ("writer_id", "application", "host", "user", "version")
        )
        pid = values.get("pid")
        return cls(writer_id, application, host, pid if isinstance(pid, int) else 0, user, version)

    def __str__(self) -> str:
        return f"{self.application} ({self.user}@{self.host}, pid {self.pid})"


OTHER_ENGINE = "another Hudi writer"
"""What people read in place of a writer that leaves no name: one of another engine."""


def name_of(writer: WriterIdentity | None) -> str:
    """The writer as people read it, also one that left no identity."""
    return str(writer) if writer else OTHER_ENGINE


_FIELDS = tuple(f.name for f in fields(WriterIdentity))
