"""Which test shows each cell of the guarantee table (docs/reference-providers.md), and what no test here can show.

A path stands for a test as `file::name`; those of the suite run for every provider in `test_lock_matrix`.
"""

from __future__ import annotations

from dataclasses import dataclass

SUITE = "src/lakelock/testing/lock_suite"
IN = "tests/integration"
STORAGE = "tests/behaviour/locks/test_storage_lock"


@dataclass(frozen=True)
class Shown:
    """The tests that show a cell, and what of it they do not show, with the reason."""

    by: tuple[str, ...] = ()
    not_shown: str = ""


EXCLUSION = (
    f"{SUITE}/processes.py::test_processes_never_hold_the_lock_at_once_and_tokens_grow",
    f"{SUITE}/processes.py::test_a_frozen_holder_is_replaced_finds_out_and_disturbs_nobody",
)
TOKEN = (f"{SUITE}/one_process.py::test_tokens_grow_across_releases",)
CRASH = (f"{SUITE}/processes.py::test_a_killed_holder_is_replaced_after_its_lease",)
RESTART = (f"{SUITE}/server.py::test_over_a_restart_the_lock_is_kept_or_its_loss_is_told_and_the_next_proceeds",)
EXPIRY = (f"{SUITE}/one_process.py::test_a_silent_holder_is_replaced_after_its_lease_and_not_before",)
CLOCK = (f"{SUITE}/one_process.py::test_a_holder_is_replaced_when_it_stops_renewing_and_never_before_whatever_its_clock",)
THREADS = (f"{SUITE}/one_process.py::test_threads_of_one_process_get_the_lock_in_order_of_arrival",)
PROCESSES = (
    f"{SUITE}/processes.py::test_none_of_three_processes_starves",
    f"{SUITE}/processes.py::test_waiting_writers_are_shown_and_served_in_order_of_arrival",
)
COST = (f"{IN}/test_lock_requests.py::test_a_lone_writer_needs_one_round_trip_to_take_the_lock_and_one_to_give_it_back",)
CROWD = (
    f"{IN}/test_lock_requests.py::"
    "test_a_crowd_asks_no_more_for_each_waiter_than_a_few_do_and_each_release_wakes_the_next_at_once",
)
RATES = "clocks that run at different rates: this machine has one clock"

GUARANTEES: dict[tuple[str, str], Shown] = {
    ("storage", "exclusion"): Shown(EXCLUSION),
    ("storage", "token"): Shown((*TOKEN, *CRASH, f"{STORAGE}_java.py::test_tokens_grow_across_java_writers_that_drop_them")),
    ("storage", "crash_release"): Shown(
        (*CRASH, *EXPIRY, f"{STORAGE}.py::test_a_holder_that_died_long_ago_is_replaced_after_a_third_of_its_lease")
    ),
    ("storage", "failover"): Shown(
        ("tests/behaviour/storage/test_storage.py::test_one_of_many_racing_creates_wins_and_one_of_many_racing_replacements",),
        "what a store does when a part of it fails is the store's own promise",
    ),
    ("storage", "clock_assumption"): Shown(
        (
            *CLOCK,
            f"{STORAGE}.py::test_a_wrong_clock_neither_robs_a_live_holder_nor_waits_longer_for_a_dead_one",
            f"{STORAGE}_java.py::test_a_java_holder_is_waited_for_until_its_validity_is_over",
        ),
        RATES,
    ),
    ("storage", "fairness"): Shown(THREADS, "that pollers come in no order needs no proof"),
    ("storage", "cost"): Shown((f"{STORAGE}.py::test_taking_and_giving_back_costs_two_requests_alone_and_three_in_turns",)),
    ("memory", "exclusion"): Shown(
        (
            f"{SUITE}/one_process.py::test_one_holds_the_lock_and_the_other_is_told_who",
            "tests/behaviour/locks/test_lock_suite.py::test_the_overlap_detectors_notice_a_lock_that_keeps_nobody_out",
        )
    ),
    ("memory", "token"): Shown(TOKEN),
    ("memory", "crash_release"): Shown((), "a lock that dies with its process has nobody left who could see it"),
    ("memory", "failover"): Shown((), "there is nothing that could fail over"),
    ("memory", "clock_assumption"): Shown(CLOCK),
    ("memory", "fairness"): Shown(THREADS),
    ("memory", "cost"): Shown((), "it sends nothing"),
    ("dynamodb", "exclusion"): Shown(
        (*EXCLUSION, f"{IN}/java/test_java_providers.py::test_java_and_python_never_hold_the_lock_at_once")
    ),
    ("dynamodb", "token"): Shown(
        (
            *TOKEN,
            *CRASH,
            f"{IN}/dynamodb/test_dynamodb.py::test_the_token_grows_although_java_deletes_the_item_that_carries_it",
            f"{IN}/dynamodb/test_dynamodb.py::test_a_block_of_tokens_that_is_used_up_is_followed_by_a_higher_one",
        )
    ),
    ("dynamodb", "crash_release"): Shown((*CRASH, *EXPIRY)),
    ("dynamodb", "failover"): Shown((), "only Amazon has a DynamoDB of several zones and regions"),
    ("dynamodb", "clock_assumption"): Shown(CLOCK, RATES),
    ("dynamodb", "fairness"): Shown(THREADS, "that pollers come in no order needs no proof"),
    ("dynamodb", "cost"): Shown(
        (
            *COST,
            f"{IN}/dynamodb/test_dynamodb.py::test_taking_and_giving_back_costs_two_requests_alone_and_in_turns",
            f"{IN}/dynamodb/test_dynamodb.py::test_a_waiter_only_reads_while_the_lock_is_held",
        )
    ),
    ("redis", "exclusion"): Shown(EXCLUSION),
    ("redis", "token"): Shown(
        (*TOKEN, *CRASH, f"{IN}/redis/test_redis.py::test_tokens_grow_over_a_lost_counter"),
        "servers whose clocks differ: this machine has one clock",
    ),
    ("redis", "crash_release"): Shown((*CRASH, *EXPIRY)),
    ("redis", "failover"): Shown(
        (
            f"{IN}/redis/test_failover.py::test_a_replica_that_never_got_the_grant_lets_two_hold_the_lock",
            f"{IN}/redis/test_failover.py::test_two_holders_commit_and_no_update_is_lost",
            f"{IN}/redis/test_failover.py::test_with_wait_a_grant_counts_only_when_the_replica_has_it",
        )
    ),
    ("redis", "clock_assumption"): Shown(CLOCK, f"{RATES}, and tests must not set it, so Redis sees no jump"),
    ("redis", "fairness"): Shown(
        (
            *THREADS,
            *PROCESSES,
            *CROWD,
            f"{IN}/redis/test_waiting.py::test_a_waiter_that_died_or_froze_does_not_stop_the_others",
        )
    ),
    ("redis", "cost"): Shown((*COST, *CROWD)),
    ("zookeeper", "exclusion"): Shown(
        (
            *EXCLUSION,
            f"{IN}/zookeeper/test_faults.py::test_a_holder_that_is_cut_off_stops_before_the_next_one_starts",
            f"{IN}/zookeeper/test_curator.py::test_java_and_python_never_hold_the_lock_at_once",
        )
    ),
    ("zookeeper", "token"): Shown((*TOKEN, *CRASH)),
    ("zookeeper", "crash_release"): Shown(CRASH),
    ("zookeeper", "failover"): Shown((f"{IN}/zookeeper/test_faults.py::test_a_held_lock_survives_the_loss_of_the_leader",)),
    ("zookeeper", "clock_assumption"): Shown(CLOCK, RATES),
    ("zookeeper", "fairness"): Shown(
        (
            *THREADS,
            *PROCESSES,
            *CROWD,
            f"{IN}/zookeeper/test_curator.py::test_each_waits_for_the_other_and_is_woken_by_its_release",
        )
    ),
    ("zookeeper", "cost"): Shown(
        (
            *COST,
            *CROWD,
            f"{IN}/zookeeper/test_zookeeper.py::test_a_lone_writer_sends_three_requests_for_a_lock_and_its_release",
        )
    ),
    ("hive_metastore", "exclusion"): Shown(
        (*EXCLUSION, f"{IN}/metastore/test_hive_metastore.py::test_a_java_writer_is_excluded"),
        "a database that fails: Derby of the tests is part of the metastore's process",
    ),
    ("hive_metastore", "token"): Shown((*TOKEN, *CRASH, *RESTART)),
    ("hive_metastore", "crash_release"): Shown(
        (
            *CRASH,
            *EXPIRY,
            f"{IN}/metastore/test_hive_metastore.py::test_a_java_writer_excludes_us_and_is_left_alone_until_the_metastore_drops_it",
        )
    ),
    ("hive_metastore", "failover"): Shown(
        (
            f"{IN}/metastore/test_client.py::test_another_metastore_is_used_when_the_first_is_away",
            f"{IN}/metastore/test_client.py::test_a_restart_in_the_middle_is_survived",
        ),
        "two metastores on one database: Derby of the tests admits one",
    ),
    ("hive_metastore", "clock_assumption"): Shown(
        (
            *CLOCK,
            "tests/unit/locks/test_metastore_lock.py::test_a_holder_that_renews_is_never_dead_whatever_the_databases_clock_does",
        ),
        RATES,
    ),
    ("hive_metastore", "fairness"): Shown((*THREADS, *PROCESSES)),
    ("hive_metastore", "cost"): Shown(
        COST,
        "how often a waiter asks: its pauses are random",
    ),
}
