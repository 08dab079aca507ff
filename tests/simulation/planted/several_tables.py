"""Rules of transactions over several tables that are knocked out one at a time (`docs/adr/0021`)."""

from __future__ import annotations

from tests.simulation.planted.planting import Planted
from tests.simulator.several_tables.run import run_several
from tests.simulator.several_tables.scenario import several_of


def first_seed_of_several(planted: Planted, within: int | None = None) -> int | None:
    """A seed that finds the bug: the one that is known to, else the first of those within which it must be found."""
    known = () if planted.seed is None else (planted.seed,)
    with planted.planted():
        for seed in (*known, *range(planted.within if within is None else within)):
            if run_several(several_of(seed)).violations:
                return seed
    return None


BUGS_OF_SEVERAL_TABLES = (
    Planted(
        "a prepare below the window",
        "whoever begins takes a prepare at the head for finished",
        "occ.begin:begin",
        "first -= 1",
        "first -= 0",
        seed=1,
    ),
    Planted(
        "next number beside an undecided prepare",
        "the next number is taken while the prepare before it may still commit",
        "occ.publish:finish_head",
        "settled = settle(table, head, timeline)",
        "return timeline",
        seed=10,
    ),
    Planted(
        "a rollback that asks no outcome",
        "whoever finds a dead writer removes what it had prepared",
        "occ.rollback:_decide",
        "if decided is not None and decided.kind is DecisionKind.PREPARE:",
        "if False:",
        seed=38,
    ),
    Planted(
        "tables that are only read",
        "what was read in a table that is not written is not validated",
        "occ.multi_table:MultiTableTransaction._commit_all",
        "for part in reading:\n            part.prepare(leases[part.uri])",
        "for part in ():\n            part.prepare(leases[part.uri])",
        seed=0,
    ),
    Planted(
        "an outcome without a reply",
        "an outcome that got no reply is taken for not put",
        "occ.multi_table:decide_outcome",
        "own.learn(News.HEARS_NOTHING)\n",
        "own.learn(News.LOSES)\n        own.learn(News.UNCOLLECTED)\n"
        "        if made is Created.UNKNOWN:\n            raise StorageUnavailable('no reply')\n",
        seed=8,
    ),
    Planted(
        "a publication before the outcome",
        "every table shows the commit before its outcome is put",
        "occ.multi_table:MultiTableTransaction._decide_and_publish",
        "verdict = decide_outcome(",
        "for part in writing:\n        part.publish()\n    verdict = decide_outcome(",
        seed=0,
    ),
    Planted(
        "a committed head that is passed by",
        "the next number is taken beside a committed prepare that is not published",
        "occ.publish:finish_head",
        "publish_for_another(table, head, settled.timeline)\n    return table.timeline()",
        "return table.timeline()",
        seed=10,
    ),
    Planted(
        "an outcome that goes too early",
        "the outcome is deleted before every table shows the commit",
        "occ.multi_table:MultiTableTransaction._decide_and_publish",
        "void = [part.uri",
        "home.table.storage.delete([layout.outcome(name.id)])\n    void = [part.uri",
        seed=9,
    ),
    Planted(
        "a cut without outcomes",
        "a reader of several tables sees of a committed transaction what is published",
        "occ.multi_table:_views_once",
        "if committed[transaction.id]:",
        "if False:",
        seed=17,
    ),
    Planted(
        "a cut in one look",
        "a reader of several tables does not look whether a log has grown meanwhile",
        "occ.multi_table:_views_once",
        "return tuple(timelines) if heads == [view.head for view in views] else None",
        "return tuple(timelines)",
        seed=9,
    ),
    Planted(
        "an outcome collected for home alone",
        "an outcome is collected once its transaction has ended in its home",
        "occ.recovery:pending_in",
        "outcome.name.tables if",
        "outcome.name.tables[:1] if",
        seed=9,
    ),
    Planted(
        "a prepare that stays in the way",
        "whoever finds a prepared instant taken back to the end waits for it to show on the timeline",
        "occ.rollback:_decide",
        "decided.kind is DecisionKind.COMMIT:",
        "decided.kind is not DecisionKind.ROLLBACK:",
        seed=720,
    ),
    Planted(
        "a prepare taken back without a record",
        "whoever finds a prepared instant taken back to the end leaves its heartbeat",
        "occ.rollback:_decide",
        "return RollbackOutcome.ROLLED_BACK if absent and settled is RollbackOutcome.GONE else settled",
        "return settled",
        seed=720,
    ),
    Planted(
        "the outcome alone",
        "whoever asks what became of a prepare does not look at the timeline after its outcome",
        "occ.publish:by_outcome",
        "if final is not None:",
        "if False:",
        seed=245,
    ),
    Planted(
        "reads before the last prepare",
        "a table that is only read is looked at before the prepares",
        "occ.multi_table:MultiTableTransaction._commit_all",
        "for part in writing:\n            part.prepare(leases[part.uri])",
        "for part in reading:\n            part.prepare(leases[part.uri])\n        reading = ()\n"
        "        for part in writing:\n            part.prepare(leases[part.uri])",
        seed=88,
    ),
)

WITHOUT_OUTCOME = Planted(
    "an abort without an outcome",
    "whoever takes a writer for dead rolls it back and puts no outcome",
    "occ.publish:settle",
    'put_outcome(\n        table, home, transaction, Verdict.ABORTED, "its writer did not decide in time"\n    )',
    'OutcomeRecord(transaction, Verdict.ABORTED, "", table.writer, 0)',
)
"""Not among the others: no seed of 3,000 finds it, as the writer has to come back after it was taken for dead."""
