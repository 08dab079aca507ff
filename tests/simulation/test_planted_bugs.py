"""Each line of the protocol that matters is knocked out in turn, and the simulator finds it: so its green means something."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from tests.api import ArrowEngine, CommitMetadata, FileGroupId, MemoryStorage, WriteStat
from tests.behaviour.beside_java import (
    test_foreign_peers,
    test_foreign_writers,
    test_metadata_statistics,
    test_metadata_table,
    test_metadata_upkeep,
)
from tests.behaviour.beside_java import test_undone_commits as undone_commits
from tests.behaviour.beside_java import test_writes_merge_on_read as written_beside_java
from tests.behaviour.conflicts import test_profiles
from tests.behaviour.conflicts import test_rows_of_one_file_group as of_one_group
from tests.behaviour.foreign import Peer
from tests.behaviour.multi_table import test_settling, test_writes_in_turn
from tests.behaviour.redo import test_nothing_to_change
from tests.behaviour.reservations import test_reservations
from tests.behaviour.simulated_time import test_found_by_simulation as simulated_time
from tests.behaviour.simulated_time import test_found_in_the_log as in_the_log
from tests.behaviour.simulated_time import test_second_owners as second_owners
from tests.behaviour.simulated_time import test_void_commits as void_commits
from tests.behaviour.tables import new_table, writer
from tests.behaviour.upkeep import test_archive, test_optimize
from tests.behaviour.upkeep import test_earlier_instants as earlier_instants
from tests.golden_tables import unpack
from tests.property import test_followed_timelines as followed
from tests.simulation.planted import careless, timelines
from tests.simulation.planted.bugs import (
    BEGUN_ANEW,
    BEHIND_A_SAVEPOINT,
    BESIDE_A_RESTORE,
    CLEANED_AFTER_A_RESTORE,
    COLLECTED,
    EARLIER_VERSIONS,
    PENDING_MARK_THE_ARCHIVE,
    PLANNED_TO_BE_COMPACTED,
    PLANTED,
    RESTORED_FROM_HALF_A_CLEAN,
    SECOND_OWNERS,
    TAKEN_LATE,
    Edit,
    Planted,
    first_seed,
)  # fmt: skip
from tests.simulation.planted.metadata import TAKEN_BACK, TIME_OF_A_CLEAN, TIME_OF_A_TRANSACTION, WITHOUT_A_NUMBER
from tests.simulation.planted.profiles import ON_THE_BASELINE, ROWS_OF_NOBODY, UNREAD_BUCKETS
from tests.simulation.planted.reservations import ADDITIONS, ON_THEIR_WAY, OVERRULED
from tests.simulation.planted.seeds_table import table, with_seeds
from tests.simulation.planted.several_tables import WITHOUT_OUTCOME
from tests.simulation.planted.upkeep import OVER_LEFTOVERS, OVER_SAVED, TAKEN_OVER
from tests.sizes import but_in_ci
from tests.unit.table_formats import test_timeline

from lakelock.conflict import Party
from lakelock.errors import LakelockError
from lakelock.events import at_each_step
from lakelock.occ.footprint import CommitSummary, Footprint
from lakelock.table.properties import MERGE_ON_READ
from lakelock.testing import ManualRuntime


def _on_a_table(test: Callable[[MemoryStorage, ManualRuntime], object]) -> None:
    runtime = ManualRuntime()
    storage = MemoryStorage(runtime.now_ms)
    new_table(storage)
    test(storage, runtime)


_COLLECTED = in_the_log.test_a_rollback_under_a_number_that_was_used_and_collected_does_not_count
_TAKEN_LATE = (
    simulated_time.test_what_a_writer_commits_that_stood_still_as_it_began_is_not_removed_by_a_reaper_that_stood_still_then
)
_BEGUN_ANEW = (
    simulated_time.test_an_instant_that_was_rolled_back_as_its_writer_stood_still_is_not_used_with_a_heartbeat_begun_anew
)

_TOLD_OF_WHAT_IS_VOID = void_commits.test_a_member_is_not_told_of_a_commit_that_java_has_rolled_back_before_it_was_visible
_OF_SECOND_OWNERS = (
    second_owners.test_a_live_java_writer_is_not_rolled_back_by_a_reaper_that_stands_still,
    second_owners.test_an_instant_that_was_rolled_back_before_it_was_taken_again_has_one_fate,
    second_owners.test_a_sweep_deletes_nothing_of_the_second_writer_of_an_instant_that_the_first_gave_up,
    void_commits.test_files_that_a_cleaner_removed_since_do_not_make_a_published_commit_void,
    lambda storage, _: void_commits.test_a_member_is_not_told_of_a_commit_that_java_has_rolled_back_before_it_was_visible(
        storage
    ),
)


def _taken_over() -> None:
    storage = MemoryStorage()
    new_table(storage)
    engine = test_optimize.with_small_files(storage)
    test_optimize.test_an_upsert_makes_a_running_optimize_yield_and_is_not_run_again(engine, storage, 1)


def _with_metadata(test: Callable[[Path], None]) -> Callable[[], None]:
    """A test of behaviour on a table that Java made with its metadata table."""

    def found() -> None:
        with TemporaryDirectory() as folder:
            test(unpack("java12_metadata", Path(folder)))

    return found


def _beside(test: Callable[..., None], *arguments: str) -> Callable[[], None]:
    """A test of behaviour on a table that another engine has written to; an error is a failure of it."""

    def found() -> None:
        storage = undone_commits.shared(MemoryStorage())
        test(storage, Peer(storage.inner), *arguments)

    return _failing(found)


def _failing(test: Callable[..., None], *arguments: object) -> Callable[[], None]:
    """A test of behaviour; an error is a failure of it."""

    def found() -> None:
        try:
            test(*arguments)
        except LakelockError as error:
            raise AssertionError(error.message) from error

    return found


def _saved(how: str) -> Callable[[], None]:
    def found() -> None:
        storage = MemoryStorage()
        new_table(storage, table_type=MERGE_ON_READ)
        earlier = earlier_instants.test_a_savepoint_keeps_its_log_files_though_they_were_compacted_under_an_earlier_instant
        try:
            earlier(storage, how)
        except LakelockError as error:
            raise AssertionError(error.message) from error
        finally:
            at_each_step(lambda step: None)

    return found


def _restored() -> None:
    storage = MemoryStorage()
    new_table(storage, table_type=MERGE_ON_READ)
    ArrowEngine(writer(storage)).insert(of_one_group.rows(**of_one_group.FIRST))
    collides = of_one_group.test_a_writer_collides_with_a_restore_that_brings_an_earlier_version_of_its_row_back
    collides(storage, of_one_group.update(of_one_group.V == 1003))


def _planned() -> None:
    storage = MemoryStorage()
    new_table(storage, table_type=MERGE_ON_READ)
    appends = written_beside_java.test_a_group_whose_compaction_is_planned_is_appended_to_however_many_rows_change
    _failing(appends, ArrowEngine(writer(storage)), storage)()


def _slow_clock(when: str) -> None:
    storage = test_foreign_peers.two_groups()
    test_foreign_peers.test_the_first_commit_of_a_writer_whose_clock_is_slow_is_seen_at_once(storage, Peer(storage), when)


def _pending(*, tells: bool) -> None:
    followed.test_a_pending_instant_is_watched_however_old_it_gets(followed.following(tells=tells))


@pytest.mark.sampled(one_in=12)
@pytest.mark.parametrize("planted", but_in_ci(PLANTED, PLANTED[::12]), ids=lambda planted: planted.name)
def test_a_planted_bug_is_found(planted: Planted) -> None:
    found = first_seed(planted)
    assert found is not None, f"not found in {planted.within} seeds"


@pytest.mark.parametrize(
    ("planted", "found"),
    [
        (OVER_LEFTOVERS, test_archive.test_an_instant_that_left_something_holds_the_archive_until_that_is_removed),
        (OVER_SAVED, test_archive.test_what_was_archived_shows_although_every_later_commit_has_a_savepoint),
        (OVERRULED, lambda: test_reservations.test_a_commit_under_a_later_claim_is_found_early(test_reservations.Table())),
        (TAKEN_LATE, partial(_on_a_table, _TAKEN_LATE)),
        (BEGUN_ANEW, partial(_on_a_table, _BEGUN_ANEW)),
        *((planted, partial(_on_a_table, found)) for planted, found in zip(SECOND_OWNERS, _OF_SECOND_OWNERS, strict=True)),
        (PENDING_MARK_THE_ARCHIVE, test_timeline.test_where_nothing_is_completed_nothing_was_archived),
        (COLLECTED, partial(_on_a_table, _COLLECTED)),
        (BEHIND_A_SAVEPOINT, _saved("read")),
        (RESTORED_FROM_HALF_A_CLEAN, _saved("restore")),
        (
            CLEANED_AFTER_A_RESTORE,
            lambda: earlier_instants.test_a_clean_deletes_nothing_that_a_restore_of_another_engine_shows_again(
                "before the plan"
            ),
        ),
        (BESIDE_A_RESTORE, test_foreign_writers.test_no_transaction_begins_or_commits_while_another_engine_restores_the_table),
        (EARLIER_VERSIONS, _restored),
        (PLANNED_TO_BE_COMPACTED, _planned),
        (WITHOUT_OUTCOME, test_settling.test_the_outcome_of_a_dead_writer_can_be_asked_for_in_each_of_its_tables),
        (TAKEN_OVER, _taken_over),
        (
            TAKEN_BACK,
            _with_metadata(
                test_metadata_upkeep.test_nothing_is_compacted_while_a_commit_is_listed_that_may_still_be_rolled_back
            ),
        ),
        (
            WITHOUT_A_NUMBER,
            _with_metadata(test_metadata_upkeep.test_a_plan_to_compact_is_taken_back_if_a_commit_was_decided_meanwhile),
        ),
        (TIME_OF_A_TRANSACTION, test_metadata_statistics.test_a_time_for_bounds_alone_is_between_two_times_of_transactions),
        *(
            (
                TIME_OF_A_CLEAN,
                _with_metadata(
                    partial(
                        test_metadata_table.test_who_rolls_back_a_writer_that_took_the_time_of_a_clean_leaves_what_that_has_listed,
                        left=left,
                    )
                ),
            )
            for left in ("heartbeat", "heartbeat and request")
        ),
        (UNREAD_BUCKETS, test_nothing_to_change.test_a_newer_row_of_a_bucket_has_been_read),
        (
            ROWS_OF_NOBODY,
            lambda: test_profiles.test_who_deletes_the_last_rows_of_a_file_has_deleted_what_others_read("Serializable"),
        ),
        (ON_THE_BASELINE, lambda: test_writes_in_turn.test_a_later_write_applies_to_what_the_earlier_left(None)),
        (
            careless.TAKEN_FOR_COMMITTED,
            _beside(
                undone_commits.test_what_is_rolled_back_before_it_is_published_is_void_and_written_again,
                "after the decision",
                "planned",
            ),
        ),
        (careless.VOID_IN_THE_WAY, _beside(undone_commits.test_a_commit_whose_files_are_gone_is_void_whoever_would_publish_it)),
        (
            careless.FILES_NOT_LOOKED_FOR,
            _beside(undone_commits.test_a_commit_whose_files_are_gone_is_void_whoever_would_publish_it),
        ),
        (careless.ONLY_THE_LAST, _beside(undone_commits.test_of_two_rollbacks_the_one_that_removed_files_counts)),
        (careless.NOT_AWAITED, _beside(undone_commits.test_a_plan_that_is_being_written_is_waited_for)),
        (
            careless.LATE_FILES,
            _beside(undone_commits.test_upkeep_removes_files_of_late_tasks_whose_markers_the_rollback_took_away_and_no_others),
        ),
        (
            careless.LOOKED_FOR_TWICE,
            _beside(undone_commits.test_upkeep_looks_for_late_files_of_an_undone_commit_only_as_long_as_a_task_may_write_them),
        ),
        (
            careless.REPAIRED_BY_A_LISTING,
            _beside(
                undone_commits.test_a_repair_by_a_process_that_lists_the_files_is_one_for_processes_that_go_by_the_commits,
                "insert",
            ),
        ),
        (
            careless.UNDONE_IN_THE_ARCHIVE,
            _beside(undone_commits.test_an_undone_commit_is_still_committed_once_it_is_archived),
        ),
        (
            careless.TOO_EARLY,
            _beside(
                undone_commits.test_the_other_half_of_an_overlap_that_comes_after_my_look_is_found_by_the_next_beginning_once
            ),
        ),
        *(
            (
                careless.UNMET,
                _failing(
                    undone_commits.test_the_first_meeting_is_noticed_although_the_newest_commit_is_one_of_lakelock,
                    known,
                ),
            )
            for known in undone_commits.WHICH_COMMITS_ARE_ANOTHERS
        ),
        (
            careless.UNREAD_DECISIONS,
            _failing(undone_commits.test_where_only_lakelock_writes_no_commit_is_read_to_look_for_another_engine),
        ),
        (
            careless.WITHDRAWN_BY_NOBODY,
            _failing(undone_commits.test_whose_transaction_was_rolled_back_without_a_decision_has_met_another_engine),
        ),
        (
            careless.WITHDRAWN_BY_OTHERS,
            _failing(undone_commits.test_whose_transaction_was_rolled_back_by_a_writer_of_lakelock_has_met_no_other_engine),
        ),
        *((timelines.UNSEEN, partial(_slow_clock, when)) for when in ("before the beginning", "afterwards")),
        (
            timelines.STILL_SHOWN,
            lambda: test_foreign_peers.test_what_is_restored_away_is_not_shown_any_more_however_old_it_is(
                test_foreign_peers.two_groups()
            ),
        ),
        (
            timelines.UNHEARD,
            lambda: followed.test_what_appears_as_if_it_were_old_is_found_at_once(followed.following(tells=True)),
        ),
        *((timelines.PASSED, partial(_pending, tells=tells)) for tells in (False, True)),
        (ON_THEIR_WAY, lambda: test_reservations.test_a_claim_that_is_on_its_way_is_waited_for(test_reservations.Table())),
        (
            ADDITIONS,
            lambda: (
                test_reservations.test_a_write_that_will_add_rows_is_waited_for_in_their_partition_before_they_are_announced(
                    test_reservations.Table()
                )
            ),
        ),
    ],
    ids=lambda value: value.name if isinstance(value, Planted) else "",
)
def test_a_planted_bug_that_needs_more_than_chance_is_found_by_a_test_of_behaviour(
    planted: Planted, found: Callable[[], None]
) -> None:
    with planted.planted(), pytest.raises((AssertionError, pytest.fail.Exception)):
        found()
    found()


def test_planted_bugs_are_gone_afterwards() -> None:
    edited = [Edit(planted.where, planted.line, planted.instead) for planted in PLANTED]
    before = [edit.function.__code__ for edit in edited]
    for planted in PLANTED:
        with planted.planted():
            assert Edit(planted.where, "", "").function.__code__ not in before
    assert before == [edit.function.__code__ for edit in edited]


def test_a_planted_bug_reaches_those_who_got_hold_of_the_function_before() -> None:
    """Rules are called through the tuples of the profiles, not by their names."""
    from lakelock.occ.footprint import Isolation
    from lakelock.occ.rules import PROFILES

    (rule,) = (rule for rule in PROFILES["strict"].rules if rule.__name__ == "file_group")
    mine = Footprint(Party("1", "UPSERT"), rewritten=frozenset({FileGroupId("p", "f")}))
    stat = WriteStat("f", "p/f_0-0-0_2.parquet", prev_commit="0", partition_path="p")
    theirs = CommitSummary.of("2", "3", CommitMetadata({"p": (stat,)}, "UPSERT", {}, None), 1)
    assert rule(mine, theirs, Isolation()) is not None
    with next(planted for planted in PLANTED if planted.name == "file group rule").planted():
        assert rule(mine, theirs, Isolation()) is None
    assert rule(mine, theirs, Isolation()) is not None


def test_a_planted_bug_whose_line_has_gone_is_an_error() -> None:
    gone = Planted("gone", "", "occ.commit:Deciding.decide", "no such line", "pass")
    with pytest.raises(ValueError, match="no such line"), gone.planted():
        pass


def test_the_document_shows_every_planted_bug_and_the_seed_that_finds_it() -> None:
    page = (Path(__file__).parents[2] / "docs" / "robustness.md").read_text()
    assert table((planted, planted.seed) for planted in PLANTED) in page


def test_seeds_that_were_found_anew_are_put_into_the_source() -> None:
    source = """BUGS = (
    Planted(
        "a",
        "what",
        seed=1,
    ),
    Planted(
        "b",
    ),
)
"""
    changed = with_seeds(source, {"a": 7, "b": 8})
    assert changed == source.replace("seed=1", "seed=7").replace('"b",\n', '"b",\n        seed=8,\n')
    assert with_seeds(changed, {"a": None}) == changed.replace("        seed=7,\n", "")
