"""The invariants, checked at every change of the stored objects and at every answer that an actor gets.

The checker inspects storage from outside, in no time. It follows the protocol's own records (decisions by its `Ledger`,
timeline, data files) and keeps the table that a serial execution in decision order would give.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from math import inf

from lakelock.markers.claims import Claim
from lakelock.occ.commit_keys import REPAIRED, RESTORED, members_of
from lakelock.occ.log import Decision, OutcomeRecord, Resolution
from lakelock.settings import ArchiveSettings, CleanSettings
from lakelock.table.instants import parse_file_name
from lakelock.table.log_files import LogFile
from lakelock.table.metadata_records import COLUMN_STATS, PARTITION_STATS, RECORD_INDEX
from lakelock.table.metadata_stats import missed
from lakelock.table.metadata_table import MetadataTable
from lakelock.table.record_index import place_in
from tests.api import Action, CommitMetadata, DataFile, FileGroupId, Instant, RollbackPlan, WriteStat, layout
from tests.simulator.checking.deletions import Deletions
from tests.simulator.checking.ledger import Ledger
from tests.simulator.checking.visible import VisibleTable, difference, files_of
from tests.simulator.metadata import has, has_metadata_table, listed_files, metadata_table, stats_of
from tests.simulator.operations import Operation, State
from tests.simulator.rows import record_key
from tests.simulator.scheduler import Hub, Process
from tests.simulator.storage import SimServer

TAG = "lakelock.tag"
FOREIGN_TAG = "simulator.operation"
_DECISION = layout.DECISIONS + "/"
_OUTCOME = layout.OUTCOMES + "/"
_TIMELINE = layout.TIMELINE + "/"
_CLAIM = layout.CLAIMS + "/"


@dataclass(frozen=True)
class Violation:
    """A broken promise, and when it broke."""

    promise: str
    detail: str
    at_s: float

    def __str__(self) -> str:
        return f"{self.promise}: {self.detail} (at {self.at_s:.3f} s)"


@dataclass(frozen=True)
class Published:
    """One commit that became visible, and the table that a serial execution gives up to it."""

    instant: str
    completion: str
    decision: int | None
    operation: int | None
    at_s: float
    state: State = field(repr=False)


def _number_of(tag: str) -> int | None:
    """The operation that a commit names."""
    return int(tag.removeprefix("op-")) if tag else None


class Checker:
    """Watches one run; the first violation stops it."""

    def __init__(
        self, hub: Hub, server: SimServer, operations: Mapping[int, Operation], *, serial: bool,
        clean: CleanSettings, archive: ArchiveSettings, careless: bool = False,
    ) -> None:  # fmt: skip
        """`careless`: a foreign writer takes no lock, and may undo what is committed; then it is to be noticed."""
        self._hub, self._server, self._operations, self._serial = hub, server, operations, serial
        self.violations: list[Violation] = []
        self.published: list[Published] = []
        self.ledger = Ledger(self.fail, is_visible=lambda instant: instant in self._completed, is_over=self._is_over)
        self.foreign_rollbacks: set[str] = set()
        self.careless = careless
        self._rolled_back_s: dict[str, float] = {}
        self._decided_s: dict[str, float] = {}
        self._foreign_since_s = inf
        self.undone: dict[str, bool] = {}
        """Commits that a careless writer has rolled back, and whether it had begun to before they became visible."""
        self.table = VisibleTable(server)
        self._twins: dict[tuple[FileGroupId, str], set[str]] = {}
        self._completed: dict[str, str] = {}
        self._owners: dict[str, Process] = {}
        self._ended: set[str] = set()
        self._untidy: set[str] = set()
        self._twice: set[str] = set()
        self._hidden_by_others: set[str] = set()
        self.claims_lost = False
        """Whether a sweep has removed the claim that followed a dead one: check and deletion are two requests."""
        self.strays: dict[str, bool] = {}
        """Files of stragglers that exist now, and whether their rows show in addition to those of the commit."""
        self.straggled = 0
        self._doubled_until_s = -1.0
        self._arrived_late: set[str] = set()
        self._deletions = Deletions(hub, server, clean, archive)
        self._began_s: dict[str, float] = {}

    def fail(self, promise: str, detail: str) -> None:
        self.violations.append(Violation(promise, detail, self._hub.now_s))
        self._hub.stop()

    def writes(self, key: str, data: bytes, process: Process) -> None:
        if key.endswith(".parquet") and process.straggles:
            file = DataFile.parse(key)
            self.straggled += 1
            self.strays[key] = file is not None and self.table.slice_of(file.group) is None
        elif key.endswith(".parquet"):
            self._data_file(key)
        elif key.startswith(_TIMELINE):
            self._timeline_file(key, data, process)
        elif key.startswith(_DECISION):
            self.ledger.decision(key, data, is_new=key not in self._server.objects)
            self._decided_s.setdefault(Decision.from_bytes(data, key).instant, self._hub.now_s)
        elif key.startswith(_OUTCOME):
            self.ledger.outcome(OutcomeRecord.from_bytes(data, key))
        elif key == layout.DECISIONS_BOUNDARY:
            self.ledger.collected(data)

    def deletes(self, key: str, process: Process) -> None:
        if key in self.strays:
            if self.strays.pop(key):
                self._doubled_until_s = self._hub.now_s
        elif key.endswith(".parquet"):
            self._data_file_deleted(key, process)
        elif key.startswith(_TIMELINE):
            instant = parse_file_name(key[len(_TIMELINE) :])
            if instant is not None and instant.is_completed:
                self._completed_deleted(key, instant, process)
            elif instant is not None and self._owners.get(instant.requested) is process:
                self.ended(instant.requested)  # somebody else may take it now
        elif key.startswith(_DECISION):
            self.ledger.deleted(key, process)
        elif key.startswith(_CLAIM):
            claim = Claim.from_bytes(self._server.objects[key].data)
            owner = self._owners.get(claim.instant) if claim is not None and claim.instant not in self._ended else None
            self.claims_lost = self.claims_lost or owner not in (None, process)

    @property
    def promised_from(self) -> str:
        """The instant as of which, and as of everything later, the table must be readable."""
        return self._deletions.promised_from(self.table.commits)

    def may_see_double(self, since_s: float) -> bool:
        """Whether a reader that began then may see rows of stragglers."""
        return any(self.strays.values()) or self._doubled_until_s >= since_s

    def owns(self, instant: str, process: Process) -> None:
        self._ended.discard(instant)
        self._owners[instant] = process
        self._began_s[instant] = self._hub.now_s

    @property
    def _running(self) -> list[tuple[str, float]]:
        """Pending transactions of live owners, and when they began."""
        return [
            (instant, self._began_s[instant])
            for instant in self._deletions.pending()
            if instant in self._owners
            and not self._owners[instant].dead
            and instant not in self._ended
            and self.ledger.of(instant) is None
        ]

    def broken(self, operation: Operation) -> str:
        """What was deleted of the savepoint that this operation took, `""` if nothing was."""
        return self._deletions.broken.get(operation.tag, "")

    def superfluous(self) -> list[str]:
        """Old files that a clean should have removed by now."""
        return self._deletions.superfluous(self.table.commits)

    def lost(self) -> list[str]:
        """Commits that are neither on the timeline nor in its history."""
        known = (parse_file_name(key[len(_TIMELINE) :]) for key in self._completed.values())
        return self._deletions.lost(instant for instant in known if instant is not None)

    def ended(self, instant: str) -> None:
        """The owner has learnt the fate of its instant, or has given it up."""
        self._ended.add(instant)

    def could_not_tidy(self, instant: str) -> None:
        """The owner said that it could not remove its own files."""
        self._untidy.add(instant)

    def excused(self, file: DataFile) -> bool:
        """A file written during or after the rollback of its writer by others, by a writer that could no longer remove it.

        A foreign writer looks for markers before it announces its rollback. Then only the file's writer knows about the file,
        and nobody ever sees it.
        """
        owner = self._owners.get(file.instant)
        gone = owner is None or owner.dead or file.instant in self._untidy
        return gone and (file.key in self._arrived_late or file.instant in self.foreign_rollbacks)

    def _is_over(self, instant: str) -> bool:
        return instant in self._completed or instant in self.foreign_rollbacks

    def _timeline_file(self, key: str, data: bytes, process: Process) -> None:
        instant = parse_file_name(key[len(_TIMELINE) :])
        if instant is not None and instant.action == Action.SAVEPOINT and instant.is_completed:
            self._deletions.saved(key, data)
        if instant is None or not instant.is_write:
            if instant is not None and process.foreign and data and instant.file_name.endswith("rollback.requested"):
                self._foreign_rollback(RollbackPlan.from_bytes(data, key).target_instant)
            return
        if not instant.is_completed:
            return
        if key in self._server.objects:
            self.fail("a commit is there for ever", f"{process} writes {key} anew")
            return
        requested = instant.requested
        if requested in self._completed:
            self.fail("an instant completes once", f"{key} after {self._completed[requested]}")
            return
        self._completed[requested] = key
        self._deletions.completed(requested)
        metadata = CommitMetadata.from_bytes(data, key)
        if "lakelock.decision" in metadata.extra:
            self.ledger.published(requested, key, data)
            if requested in self.foreign_rollbacks and self.ledger.is_decided(requested):
                if not self.careless or self._is_seen_before_publication(requested):
                    self.fail("what was rolled back stays so", f"{key} becomes visible after a foreign rollback")
                self.undone[requested] = True
        else:
            self._foreign_since_s = min(self._foreign_since_s, self._hub.now_s)
        self._apply(requested, instant.completion or "", self.ledger.of(requested), metadata)
        if has_metadata_table(self._server) and not self.violations:
            self._check_listed(instant)

    def _check_listed(self, done: Instant) -> None:
        """Readers of the metadata table see what others see as soon as it is visible."""
        found = metadata_table(self._server, done)
        told = listed_files(found)
        shown = [*(file.key for file in self.table.files), *(log.key for log in self.table.logs)]
        hidden = [key for key in shown if told.get(key) != len(self._server.objects[key].data)]
        if hidden:
            self.fail("what is visible is in the metadata table", f"{hidden[:3]} is not, as {done.requested} becomes visible")
        elif has(RECORD_INDEX, self._server):
            self._check_places(found, done)
        if has(PARTITION_STATS, self._server) and not self.violations:
            self._check_bounds(found, shown, done)

    def _check_bounds(self, found: MetadataTable, shown: Iterable[str], done: Instant) -> None:
        """No bounds hide a row; but those of another engine may be hidden by a later instant's until lakelock commits."""
        told, bounds = found.records(COLUMN_STATS), found.records(PARTITION_STATS)
        hidden = [
            key for key in shown if missed(*layout.split_path(key), stats_of(key, self._server.objects[key].data), told, bounds)
        ]
        if self.ledger.of(done.requested) is None:
            self._hidden_by_others.update(key for key in hidden if done.requested in key)
        else:
            self._hidden_by_others.clear()
        wrong = [key for key in hidden if key not in self._hidden_by_others]
        if wrong:
            self.fail("no bounds hide a row", f"those of {wrong[:3]} do, as {done.requested} becomes visible")

    def _check_places(self, found: MetadataTable, done: Instant) -> None:
        """The record index has each key where its row is, as soon as that is visible, unless the key ever was in two places."""
        places: dict[str, FileGroupId] = {}
        for file in self.table.files:
            for row in self.table.rows_now(file):
                key = record_key(row.part, row.key)
                if key in places:
                    self._twice.add(key)
                places[key] = file.group
        told = {key: place_in(record) for key, record in found.records(RECORD_INDEX).items()}
        wrong = [key for key in sorted(places.keys() | told.keys()) if places.get(key) != told.get(key)]
        wrong = [f"{key} in {told.get(key)}, not in {places.get(key)}" for key in wrong if key not in self._twice]
        if wrong:
            self.fail("the record index has each key where its row is", f"{wrong[:3]}, as {done.requested} becomes visible")

    def _foreign_rollback(self, target: str) -> None:
        if target in self._completed:
            if not self.careless:
                self.fail("a commit is there for ever", f"a foreign writer rolls {target} back, which is visible")
            self.undone.setdefault(target, False)
        self.foreign_rollbacks.add(target)
        self._rolled_back_s.setdefault(target, self._hub.now_s)

    def is_untold(self, instant: str) -> bool:
        """Whether its writer, who knew of the other engine, must have found that this commit is undone."""
        knew = self._began_s.get(instant, 0.0) > self._foreign_since_s
        return knew and self.undone.get(instant, False) and bool(self.files_gone(instant))

    def _is_seen_before_publication(self, instant: str) -> bool:
        """Whether the look after the decision must have found the rollback: its writer knew that there is another engine."""
        knew = self._began_s.get(instant, 0.0) > self._foreign_since_s
        return knew and self._rolled_back_s[instant] < self._decided_s.get(instant, 0.0)

    def files_gone(self, instant: str) -> list[str]:
        """The files of a visible commit that are not there."""
        metadata = next((each for requested, each in self.table.commits if requested == instant), None)
        return [file.key for file in files_of(metadata) if file.key not in self._server.objects] if metadata else []

    def unnoticed(self, noticed: Iterable[str]) -> list[str]:
        """Commits that a careless writer has undone, files and all, and that are not among these."""
        return sorted(each for each in self.undone.keys() - set(noticed) if self.files_gone(each))

    def _apply(self, requested: str, completion: str, decision: Decision | None, metadata: CommitMetadata) -> None:
        """Make the files of a commit visible, and compare with the result of a serial execution."""
        for stat in metadata.stats:
            key = stat.path or ""
            file = DataFile.parse(key)
            if file is not None and self.careless and requested in self.undone:
                continue
            is_log = LogFile.parse(key) is not None
            if (file is None and not is_log) or key not in self._server.objects:
                self.fail("a visible commit has its files", f"{requested} names {key}, which is not there")
                return
            if file is not None:
                self._check_based_on(file, stat, requested)
        self._deletions.superseded(self.table.show(requested, completion, metadata))
        self.table.take_out(metadata.extra.get(REPAIRED, "").split(","))
        tag = metadata.extra.get(TAG, "") or metadata.extra.get(FOREIGN_TAG, "")
        numbers = [_number_of(member.tag) for member in members_of(metadata.extra)] or [_number_of(tag)]
        for number in numbers:
            again = number is not None and any(p.operation == number for p in self.published)
            if number is not None and again and not self._operations[number].repeats:
                self.fail(
                    "an operation is applied once", f"{self._operations[number]} becomes visible a second time as {requested}"
                )
        if len(set(numbers)) < len(numbers):
            self.fail("an operation is applied once", f"{requested} has one of the operations {numbers} twice")
        done = [self._operations[number] for number in numbers if number is not None]
        state = dict(self.published[-1].state) if self.published else {}
        known = 0 < len(done) == len(numbers)
        if known and self._serial and all(operation.serial for operation in done):
            moment = metadata.extra.get(RESTORED)
            if moment is not None:
                state = self.table.as_of(moment)
            else:
                for operation in done:
                    operation.apply(state)
            seen = self.table.now()
            if seen != state:
                names = ", ".join(map(str, done))
                self.fail("serial in decision order", f"{names} as {requested}: {difference(state, seen)}")
        else:
            state = self.table.now()
        decided = decision.number if decision else None
        self.published += [Published(requested, completion, decided, number, self._hub.now_s, state) for number in numbers]

    def _check_based_on(self, file: DataFile, stat: WriteStat, requested: str) -> None:
        twins = self._twins.get((file.group, requested), set())
        if len(twins) > 1:
            self.fail("one base file per file group and instant", f"{sorted(twins)} at the commit of {requested}")
        known = self.table.slice_of(file.group)
        if known is not None and known.instant > requested:
            self.fail("newer slices hide older ones", f"{file.key} is hidden by {known.key}, which was visible before")
        elif not stat.is_new_group and (known is None or known.instant != stat.prev_commit):
            self.fail("no update is lost", f"{file.key} builds on {stat.prev_commit}, and {known and known.key} was visible")

    def _data_file(self, key: str) -> None:
        file = DataFile.parse(key)
        if file is None:
            return
        rolled_back = self.ledger.resolution(self.ledger.of(file.instant)) is Resolution.ROLLED_BACK
        if rolled_back or file.instant in self.foreign_rollbacks:
            self._arrived_late.add(key)
        twins = self._twins.setdefault((file.group, file.instant), set())
        twins.add(key)
        if file.instant in self._completed and len(twins) > 1:
            self.fail("one base file per file group and instant", f"{key} arrives after its instant became visible")

    def _completed_deleted(self, key: str, instant: Instant, process: Process) -> None:
        if instant.action == Action.SAVEPOINT:
            self._deletions.released(key)
        elif (instant.requested, instant.action) not in self._deletions.archived():
            self.fail("a commit is there for ever", f"{process} deletes {key}, and the history lacks it")
        elif instant.is_write and (why := self._deletions.too_young(instant.requested)):
            self.fail("an instant is archived in its time", f"{process} deletes {key}: {why}")

    def _data_file_deleted(self, key: str, process: Process) -> None:
        file = DataFile.parse(key)
        if file is None:
            return
        if self.careless and process.foreign:
            self.table.clean(file)
            return
        self._twins.get((file.group, file.instant), set()).discard(key)
        decision = self.ledger.of(file.instant)
        named = self.table.slice_of(file.group) == file or (
            decision is not None
            and self.ledger.is_decided(file.instant)
            and file.instant not in self.foreign_rollbacks
            and key in {stat.path for stat in CommitMetadata.from_bytes(decision.payload, "").stats}
        )
        if named:
            why = self._deletions.still_needed(file, self.table.commits, self._running)
            if why:
                self.fail("files that are needed stay", f"{process} deletes {key}: {why}")
            self._deletions.deleted(file, str(process))
            self.table.clean(file)
        owner = self._owners.get(file.instant)
        if owner is None or owner is process or owner.dead or file.instant in self._ended:
            return
        if decision is None and file.instant not in self.foreign_rollbacks:
            self.fail("no file of a live transaction is removed", f"{process} deletes {key} of {owner}")
