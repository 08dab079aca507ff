"""The feed: what each writer reports about itself, as JSON lines in a file that survives its death."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from lakelock.conflict import Conflict
from tests.api import Event, Runtime

_PID = re.compile(r"\bpid (\d+)\)")


@dataclass(frozen=True)
class Line:
    """One report of one writer. `kind` is an event's name, or one of the demo's own (ready, batch, killed, …)."""

    at_ms: int
    writer: str
    kind: str
    instant: str = ""
    operation: str = ""
    facts: Mapping[str, object] = field(default_factory=dict)

    def to_json(self) -> str:
        return json.dumps(self.__dict__, default=_plain)

    @classmethod
    def from_json(cls, text: str) -> Line:
        return cls(**json.loads(text))


class Feed:
    """The writing end, in the writer's process. Each line is one small append, so it is whole even if the next is not."""

    def __init__(self, folder: Path, writer: str, runtime: Runtime) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._writer, self._runtime = writer, runtime
        self._stream = (folder / f"{writer}.jsonl").open("a", buffering=1)

    def event(self, event: Event) -> None:
        """A listener for lakelock's events."""
        self._put(Line(self._runtime.now_ms(), self._writer, str(event.kind), event.instant, event.operation, event.facts))

    def say(self, kind: str, **facts: object) -> None:
        """Report something that is the demo's, not lakelock's."""
        self._put(Line(self._runtime.now_ms(), self._writer, kind, facts=facts))

    def _put(self, line: Line) -> None:
        self._stream.write(line.to_json() + "\n")


class FeedReader:
    """The reading end: what all writers reported since the last look, in order of time."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._read_upto = folder, dict[Path, int]()

    def new_lines(self) -> list[Line]:
        lines: list[Line] = []
        for path in sorted(self._folder.glob("*.jsonl")):
            with path.open("rb") as stream:
                stream.seek(self._read_upto.get(path, 0))
                text = stream.read()
            whole = text[: text.rfind(b"\n") + 1]
            self._read_upto[path] = self._read_upto.get(path, 0) + len(whole)
            lines += [Line.from_json(one.decode()) for one in whole.splitlines()]
        return sorted(lines, key=lambda line: line.at_ms)


def pid_in(text: object) -> int | None:
    """The process id in the text form of a writer's identity."""
    found = _PID.search(str(text))
    return int(found.group(1)) if found else None


def _plain(value: object) -> object:
    return value.as_dict() if isinstance(value, Conflict) else str(value)
