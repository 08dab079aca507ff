"""`lakelock doctor`: is everything in place for this table, from the settings to the lock's round trip.

Each check examines one thing, says what it found, and names the next step if it is wrong.
"""

from __future__ import annotations

import platform
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import asdict
from importlib.metadata import PackageNotFoundError, version
from typing import Annotated

import typer
from rich.text import Text

from lakelock.cli.arguments import Call, location_of, on_table, resolved
from lakelock.cli.doctor_contents import check_contents, check_index, check_keys, check_metadata_table
from lakelock.cli.doctor_services import Check, DoctorContext, check_clients, check_lock, check_spark
from lakelock.cli.output import Exit, Output
from lakelock.clock import SystemRuntime
from lakelock.errors import LISTED_BY_DOCTOR, LakelockError, TableError
from lakelock.markers.liveness import LivenessState, StorageClock, judge_all, who_removes
from lakelock.occ.create import proven_utc, recorded_index
from lakelock.occ.log import DecisionKind, DecisionLog, Resolution, resolve
from lakelock.occ.rejections import outdated_rejections, rejected_instants
from lakelock.occ.schema import history_of_columns
from lakelock.storage import Storage, probe
from lakelock.table import layout
from lakelock.table.eligibility import (
    Refusal,
    next_step,
    why_columns_misfit,
    why_files_misfit,
    why_not_readable,
    why_not_writable,
)
from lakelock.table.index import parsed_index
from lakelock.table.instants import State, parse_instant
from lakelock.table.properties import TIMEZONE, TableProperties, read_properties
from lakelock.table.snapshot import read_snapshot
from lakelock.table.timeline import read_timeline
from lakelock.texts import counted

SKEW_MS = 5_000
"""How far a clock may be off before the check mentions it. No amount of skew breaks anything."""

PACKAGES = ("lakelock", "pyspark", "pandas", "pyarrow", "obstore", "fastavro", "hudi")


def examine(context: DoctorContext, *, keys: bool = False) -> Iterator[Check]:
    """Run every check in turn; one that fails does not keep the others from running. With `keys` all record keys are read."""
    for name, check in (CHECKS | ({"keys": check_keys} if keys else {})).items():
        try:
            yield from check(context)
        except LakelockError as error:
            yield Check(name, "failed", error.message, error.hint.removesuffix(LISTED_BY_DOCTOR))


def check_settings(context: DoctorContext) -> Iterator[Check]:
    changed = [f"{key} from {o.origin}" for key, o in context.resolved.origins.items() if o.origin != "default"]
    yield Check("settings", "ok", ", ".join(changed) if changed else "all at their defaults")
    for warning in context.resolved.warnings:
        yield Check("settings", "warning", warning)


def check_table(context: DoctorContext) -> Iterator[Check]:
    properties = read_properties(context.storage)
    configured = parsed_index(context.settings.write.index) if context.settings.write.index else None
    properties = properties.indexed(recorded_index(context.storage) or configured)
    keys, fields = ", ".join(properties.record_keys) or "none", ", ".join(properties.partition_fields) or "none"
    found = f"{properties.name}: version {properties.version}, {properties.type}, key {keys}, partitioned by {fields}"
    if properties.bucket_index is not None:
        found += f", {counted(properties.bucket_index.count, 'bucket')} in each partition"
    elif properties.index is not None:
        found += ", keys are looked up in every partition (index=global)"
    if properties.timezone != "UTC" and not why_not_readable(properties):
        yield _zone(context, properties.timezone)
    refusals = _refusals(context, properties)
    if not refusals:
        yield Check("table", "ok", found)
        return
    what = "cannot be read" if why_not_readable(properties) else "can be read, but not written"
    yield Check("table", "failed", f"{found}; {what}")
    for number, refusal in enumerate(refusals, 1):
        last = number == len(refusals)
        yield Check("table", "failed", str(refusal), next_step(properties, refusals) if last else "")


def _zone(context: DoctorContext, zone: str) -> Check:
    """Whether the first write can record that the instants are in UTC."""
    try:
        proven = counted(proven_utc(context.storage), "instant")
    except TableError as error:
        return Check("table", "failed", error.message, error.hint)
    return Check("table", "ok", f"its zone is {zone}: the first write sets {TIMEZONE}=UTC, as {proven} prove to be in it")


def _refusals(context: DoctorContext, properties: TableProperties) -> list[Refusal]:
    """Every reason why lakelock does not write the table, from its properties and from its files."""
    found = list(why_not_writable(properties))
    if not why_not_readable(properties):
        with suppress(LakelockError):  # files that cannot be listed are reported by the check of contents
            timeline = read_timeline(context.shown)
            columns = why_columns_misfit(*history_of_columns(context.shown, timeline))
            found += [columns] if columns is not None else []
            snapshot = read_snapshot(context.io(context.shown), timeline)
            buckets = why_files_misfit(properties, snapshot)
            found += [buckets] if buckets is not None and buckets not in found else []
    return found


def check_conditions(context: DoctorContext) -> Iterator[Check]:
    write_id = context.runtime.uuid()
    probe(context.storage, layout.probe(write_id), write_id)
    yield Check("storage", "ok", f"{context.storage.uri} refuses a second create and a write over a changed object")


def check_clock(context: DoctorContext) -> Iterator[Check]:
    clock = StorageClock.measure(context.storage, context.runtime)
    skew_ms = context.runtime.now_ms() - clock.now_ms(context.runtime)
    away = f"{abs(skew_ms) / 1000:.1f} s {'ahead of' if skew_ms > 0 else 'behind'} the storage's"
    if abs(skew_ms) > SKEW_MS:
        yield Check("clock", "warning", f"this machine's clock is {away}", "nothing breaks, but set the clock (NTP)")
    else:
        yield Check("clock", "ok", f"this machine's clock is {away}")
    newest = read_timeline(context.shown).newest_time
    ahead_ms = parse_instant(newest) - context.runtime.now_ms() if newest else 0
    if ahead_ms > SKEW_MS:
        yield Check(
            "clock",
            "warning",
            f"the timeline has reached {newest}, {ahead_ms / 1000:.0f} s from now: the clock of another writer is fast",
            "nothing breaks, new instants follow it; set that clock (NTP)",
        )


def check_writers(context: DoctorContext) -> Iterator[Check]:
    timeline = read_timeline(context.shown)
    judged = judge_all(
        context.io(context.storage),
        context.settings.heartbeat,
        timeline.pending,
    )
    dead = [each.left_to_its_engine_s for each in judged.values() if each.state is LivenessState.DEAD]
    alive = sum(each.state is LivenessState.ALIVE for each in judged.values())
    commits, live = counted(len(timeline.commits), "commit"), counted(alive, "live writer")
    found = f"{commits} in the timeline, {len(timeline.pending)} pending, {live}"
    if dead:
        hint = f"{who_removes(dead)}; to do it now: {context.next('markers reap')}"
        yield Check("writers", "warning", f"{found}, {len(dead)} dead", hint)
    else:
        yield Check("writers", "ok", found)
    if timeline.pending_services:
        plans = ", ".join(str(plan) for plan in timeline.pending_services[:5])
        hint = "writes to their file groups are refused until Hudi has executed or rolled back the plan"
        yield Check("writers", "warning", f"table services are planned but not executed: {plans}", hint)


_PENDING = (State.REQUESTED, State.INFLIGHT)


def check_decisions(context: DoctorContext) -> Iterator[Check]:
    """Every record is readable, and each decided commit is visible."""
    log = DecisionLog(context.storage)
    view = log.look(newest=0)
    unreadable = 0
    last = None
    for number in view.numbers:
        try:
            last = log.read(number)
        except LakelockError as error:
            unreadable += 1
            yield Check("decisions", "failed", error.message, error.hint.removesuffix(LISTED_BY_DOCTOR))
    if unreadable:
        return
    timeline = read_timeline(context.shown)
    if last is not None and resolve(last) is Resolution.COMMITTED and last.instant not in timeline.completed_instants:
        found = f"decision {last.number} commits {last.instant}, which is not visible yet"
        hint = f"its writer or the next one publishes it; to look: {context.next('commits show', last.instant)}"
        yield Check("decisions", "warning", found, hint)
    elif last is not None and last.kind is DecisionKind.PREPARE and timeline.state_of(last.instant) in _PENDING:
        assert last.transaction is not None
        found = (
            f"decision {last.number} prepares {last.instant} for the transaction {last.transaction.id}, which has not ended "
            f"here; its outcome is in {last.transaction.home}"
        )
        show = context.next("commits show", last.instant)
        hint = f"its writer or the next one ends it; if it is committed, this publishes it: {show}"
        yield Check("decisions", "warning", found, hint)
    else:
        yield Check("decisions", "ok", f"{counted(len(view.numbers), 'decision')}, the latest is {view.head}")


def check_rejections(context: DoctorContext) -> Iterator[Check]:
    found = rejected_instants(context.storage)
    if not found:
        yield Check("rejections", "ok", "no transaction left a record of its rejection")
        return
    old = len(outdated_rejections(context.storage, context.runtime))
    more = f"; upkeep deletes {old} of them" if old else ""
    hint = f"to see why: {context.next('conflicts ls')}"
    rejected = counted(len(found), "rejected transaction")
    yield Check("rejections", "ok", f"{rejected} left a record, the latest is {found[0]}{more}", hint)


def check_packages(context: DoctorContext) -> Iterator[Check]:
    found = [f"Python {platform.python_version()}"]
    for package in PACKAGES:
        try:
            found.append(f"{package} {version(package)}")
        except PackageNotFoundError:
            found.append(f"no {package}")
    yield Check("packages", "ok", ", ".join(found))


CHECKS: dict[str, Callable[[DoctorContext], Iterator[Check]]] = {
    "settings": check_settings,
    "table": check_table,
    "storage": check_conditions,
    "clock": check_clock,
    "lock": check_lock,
    "writers": check_writers,
    "decisions": check_decisions,
    "rejections": check_rejections,
    "contents": check_contents,
    "metadata": check_metadata_table,
    "index": check_index,
    "packages": check_packages,
    "spark": check_spark,
    "clients": check_clients,
}

_STYLES = {"ok": "green", "warning": "yellow", "failed": "bold red"}


@on_table
def doctor(
    call: Call,
    keys: Annotated[bool, typer.Option("--keys", help="Also read the key of every row, and name duplicates.")] = False,
) -> None:
    """Check a table, its storage, its lock and this machine.

    Exit code 1 when a check failed, 0 otherwise. Writes a few small objects under `.hoodie/` and removes them, and takes the
    commit lock once. Only the lock's own file stays. Warnings alone end with 0: jobs can run.
    """
    found = resolved(call.config, call.overrides)
    storage = location_of(call.path, found.settings).open()
    _ensure_table(storage)
    checks = list(examine(DoctorContext(call.path, found, storage, SystemRuntime(), call.config, call.overrides), keys=keys))
    failed = any(check.status == "failed" for check in checks)
    values = {"table": storage.uri, "ok": not failed, "checks": [asdict(check) for check in checks]}
    call.out.show(values, lambda o: _print(o, checks))
    if failed:
        raise typer.Exit(Exit.ERROR)


def _ensure_table(storage: Storage) -> None:
    """Refuse to examine a folder that is not a table: the checks would leave folders behind in it."""
    if storage.get(layout.PROPERTIES) is None:
        raise TableError(
            f"{storage.uri} is not a table: it has no {layout.PROPERTIES}",
            hint="check the path; LakeTable.create(...) makes a table",
        )


def _print(out: Output, checks: list[Check]) -> None:
    for check in checks:
        out.text(Text(f"{check.status:<8}", style=_STYLES[check.status]) + Text(f"{check.name:<10} {check.found}"))
        if check.hint:
            out.text(Text(f"{'':19}next: {check.hint}"))
