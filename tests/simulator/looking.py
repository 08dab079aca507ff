"""What readers see, compared with the states that the table has had."""

from __future__ import annotations

from lakelock.errors import CorruptTableError, LakelockError, StorageUnavailable
from tests.simulator.checking.checks import Checker
from tests.simulator.engine import Engine
from tests.simulator.operations import Look, LookBack, State, state_of

PREFIX = "readers see one committed prefix"
RETAINED = "what is retained can be read"


def look(checker: Checker, engine: Engine, operation: Look, began_s: float) -> State | None:
    """Read the table and judge what was seen; the state if it is that of now. Raises what the engine raises."""
    if isinstance(operation, LookBack):
        _look_back(checker, engine, operation, began_s)
        return None
    before, commits = len(checker.published), len(checker.table.commits)
    try:
        seen = state_of(engine.read())
    except CorruptTableError as error:
        if checker.undone:
            raise
        checker.fail(PREFIX, f"{operation} failed: {error.message}")
        raise
    prefixes = [p.state for p in checker.published[max(0, before - 1) :]]
    if before == 0:
        prefixes.append({})
    if checker.undone:
        return None
    if checker.careless:
        # Without the lock a commit may complete later than another and become visible before it. A reader who lists in
        # pages takes those that had completed by the last that its first listing shows.
        counts = range(commits, len(checker.table.commits) + 1)
        prefixes += [checker.table.completed_by(each.completion, count) for count in counts for each in checker.published]
    if seen not in prefixes and not checker.may_see_double(began_s):
        checker.fail(PREFIX, f"{operation} saw {seen}")
    return seen


def _look_back(checker: Checker, engine: Engine, operation: LookBack, began_s: float) -> None:
    before = len(checker.table.commits)
    commits = engine.coordinator.table.timeline().commits
    if len(commits) <= operation.back:
        return
    moment = commits[-1 - operation.back].requested
    try:
        seen = state_of(engine.read(moment))
    except StorageUnavailable:
        raise
    except LakelockError as error:
        # A listing may show a straggler's file that is swept before it is read.
        if moment >= checker.promised_from and not checker.may_see_double(began_s):
            checker.fail(RETAINED, f"{operation}, as of {moment}, failed: {error.message}")
        raise
    # A commit with an earlier instant may have become visible meanwhile, or after the savepoint that alone keeps this moment.
    first = before if moment >= checker.promised_from else 1
    states = [checker.table.as_of(moment, count) for count in range(first, len(checker.table.commits) + 1)]
    if seen not in states and not checker.may_see_double(began_s):
        checker.fail(RETAINED, f"{operation} saw {seen} as of {moment}")
