"""`lakelock markers`: what writers have announced, which of them are dead, and how to remove what the dead ones left."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass

import typer

from lakelock.cli.arguments import Call, DryRunOption, on_table
from lakelock.cli.output import Exit, Output, plain
from lakelock.errors import StorageError
from lakelock.events import Event, EventKind
from lakelock.identity import name_of
from lakelock.markers.claims import all_claims
from lakelock.markers.leftovers import find_leftovers
from lakelock.markers.liveness import Liveness, LivenessState, judge_all, who_removes
from lakelock.occ.coordinator import Coordinator
from lakelock.occ.recovery import Reaped, find_dead
from lakelock.storage import Storage
from lakelock.table import layout
from lakelock.table.eligibility import check_writable
from lakelock.table.instants import is_instant_time
from lakelock.table.timeline import Timeline

app = typer.Typer(no_args_is_help=True, help="What writers have announced, and what dead writers left.")


@dataclass(frozen=True)
class Announced:
    """One instant with a marker, a claim, a heartbeat, or a pending timeline file."""

    instant: str
    state: str
    liveness: str
    heartbeat_age_s: float | None
    operation: str
    writer: str
    markers: int
    claims: int
    evidence: str
    left_to_its_engine_s: float = 0.0


@app.command("ls")
@on_table
def list_markers(call: Call) -> None:
    """List the writers that are active or left something behind: heartbeat, markers and claims of each."""
    with call.opened() as coordinator:
        rows = _announced(coordinator, call.out)
        values = {"table": coordinator.table.storage.uri, "writers": [plain(row) for row in rows]}
        call.out.show(values, lambda o: _print(o, call, rows))


def _announced(coordinator: Coordinator, out: Output) -> list[Announced]:
    table = coordinator.table
    timeline = table.timeline()
    try:
        judged = judge_all(table.io, table.settings.heartbeat, timeline.pending)
    except StorageError as error:
        out.note(f"cannot tell live writers from dead ones, because the storage's clock cannot be read: {error.message}")
        judged = {}
    markers = _markers(table.storage)
    claims = Counter(claim.instant for claim in all_claims(table.io).values())
    instants = {*judged, *markers, *claims, *(i.requested for i in timeline.pending)}
    return [_row(instant, timeline, judged.get(instant), markers[instant], claims[instant]) for instant in sorted(instants)]


def _row(instant: str, timeline: Timeline, liveness: Liveness | None, markers: int, claims: int) -> Announced:
    state = timeline.state_of(instant)
    record = liveness.record if liveness else None
    has_beat = liveness is not None and liveness.state is not LivenessState.MISSING
    return Announced(
        instant=instant,
        state=str(state) if state is not None else "archived" if instant < timeline.first_active else "gone",
        liveness=liveness.state.value if liveness else "",
        heartbeat_age_s=round(liveness.age_s, 1) if liveness and has_beat else None,
        operation=record.operation if record else "",
        writer=str(record.writer) if record else "",
        markers=markers,
        claims=claims,
        evidence=liveness.evidence if liveness else "",
        left_to_its_engine_s=round(liveness.left_to_its_engine_s, 1) if liveness else 0.0,
    )


def _markers(storage: Storage) -> Counter[str]:
    """Number of marker objects by instant. One listing."""
    start = len(layout.TEMP) + 1
    found = Counter(entry.key[start:].partition("/")[0] for entry in storage.list(layout.TEMP))
    return Counter({instant: count for instant, count in found.items() if is_instant_time(instant)})


def _print(out: Output, then: Call, rows: list[Announced]) -> None:
    columns = ("instant", "timeline", "writer is", "beat s ago", "operation", "by", "marker files", "claims")
    cells = [(r.instant, r.state, r.liveness, r.heartbeat_age_s, r.operation, r.writer, r.markers, r.claims) for r in rows]
    out.table(columns, cells, empty="no writer is active, and none left anything behind")
    dead = [row.left_to_its_engine_s for row in rows if row.liveness == LivenessState.DEAD.value]
    if dead:
        out.line(f"{len(dead)} dead; {who_removes(dead)}; to do it now: {then.command('markers reap')}")


@app.command("reap")
@on_table
def reap_markers(
    call: Call,
    dry_run: DryRunOption = False,
) -> None:
    """Roll back what dead writers left behind, and publish what they had decided. Live writers are never touched.

    Exit code 1 if the leftovers of one of them could not be removed; those of the others are still removed.
    """
    problems: list[str] = []

    def note_problem(event: Event) -> None:
        if event.kind is EventKind.ALERT:
            problems.append(f"{event.instant}: {event.facts.get('problem', '')}")

    with call.opened(lock=not dry_run, listeners=[note_problem]) as coordinator:
        check_writable(coordinator.properties)
        uri = coordinator.table.storage.uri
        if dry_run:
            found = _would_reap(coordinator)
            call.out.show({"table": uri, "dry_run": True, "dead": found}, lambda o: _print_dry_run(o, found))
            return
        coordinator.ensure_same_provider()
        reaped = coordinator.reap()
        values = {"table": uri, "dry_run": False, "reaped": [plain(each) for each in reaped], "problems": problems}
        call.out.show(values, lambda o: _print_reaped(o, reaped, problems))
        if problems:
            raise typer.Exit(Exit.ERROR)


def _would_reap(coordinator: Coordinator) -> list[dict[str, object]]:
    table = coordinator.table
    found: list[dict[str, object]] = []
    timeline = table.timeline()
    for instant, action, liveness in find_dead(table, timeline, patient=False):
        left = find_leftovers(table.io, instant, data=action is not None)
        files: dict[str, list[str]] = defaultdict(list)
        for partition, names in left.by_partition.items():
            files[partition].extend(names)
        record = liveness.record
        found.append(
            {
                "instant": instant,
                "state": str(timeline.state_of(instant)) if action else "finished",
                "operation": record.operation if record else "",
                "writer": name_of(record.writer if record else None),
                "evidence": liveness.evidence,
                "data_files": list(left.data_files),
                "control_files": list(left.control_files),
            }
        )
    return found


def _print_dry_run(out: Output, found: list[dict[str, object]]) -> None:
    columns = ("instant", "timeline", "by", "why", "data files", "markers and the like")
    rows = [
        (f["instant"], f["state"], f["writer"], f["evidence"], _count(f["data_files"]), _count(f["control_files"]))
        for f in found
    ]
    out.table(columns, rows, empty="no dead writer left anything")
    if found:
        out.line("nothing was changed; a writer that had decided before it died is published instead of rolled back")


def _print_reaped(out: Output, reaped: list[Reaped], problems: list[str]) -> None:
    rows = [(r.instant, r.outcome.value, r.operation, r.writer, r.evidence) for r in reaped]
    if rows or not problems:
        out.table(("instant", "outcome", "operation", "by", "why"), rows, empty="no dead writer left anything")
    for problem in problems:
        out.note(f"problem: {problem}")


def _count(files: object) -> int:
    return len(files) if isinstance(files, list) else 0
