"""Planted bugs of what is done beside a writer that takes no lock: looked for before the publication, told after it."""

from __future__ import annotations

from tests.simulation.planted.kinds import CARELESS
from tests.simulation.planted.planting import Edit, Planted

BUGS_BESIDE_THE_CARELESS = (
    Planted(
        "no look between decision and publication",
        "a decided commit is published by the timeline from before its decision",
        "occ.commit:Deciding._boundary_after",
        "if not table.observed.foreign_writers:",
        "if True:",
        also=(Edit("occ.commit:Deciding.conclude", "if table.observed.foreign_writers:", "if False:"),),
        within=4000,
        among=CARELESS,
        seed=17,
    ),
    Planted(
        "undone and told as committed",
        "a writer does not look whether another engine has undone its commit meanwhile",
        "occ.foreign:alarm",
        "undone = own_commit_undone(table, decision, timeline)",
        "undone = None",
        within=4000,
        among=CARELESS,
        seed=2644,
    ),
    Planted(
        "nobody looks back",
        "no transaction looks at its beginning for commits that another engine has undone, and no upkeep does",
        "occ.foreign:LookBack.look",
        "undone = undone_commits(table, timeline, known=self._settled)",
        "undone = []",
        also=(Edit("occ.upkeep:_look_for_undone", "found = unrepaired(table, timeline)", "found = []"),),
        within=4000,
        among=CARELESS,
        seed=54,
    ),
    Planted(
        "undone commits are archived",
        "the archiver moves past a commit that another engine has undone, and nothing explains it any more",
        "occ.archive:_holder_of",
        "if commit.requested in undone:",
        "if False:",
        within=4000,
        among=CARELESS,
        seed=2644,
    ),
)

TAKEN_FOR_COMMITTED = Planted(
    "void taken for committed",
    "whoever rolls back a decided commit that another engine has rolled back reports it as committed",
    "occ.rollback:_published",
    "if publish_for_another(table, decided, timeline) is not Publication.VOID:",
    "if publish_for_another(table, decided, timeline):",
)
VOID_IN_THE_WAY = Planted(
    "a void head keeps everybody out",
    "a transaction does not begin as long as the newest decided commit is pending, void or not",
    "occ.begin:begin",
    "if head is not None and unpublished and head.instant not in table.observed.void:",
    "if head is not None and unpublished:",
)
ONLY_THE_LAST = Planted(
    "only the last rollback",
    "of several rollbacks of a commit only the last is asked what it removed",
    "occ.foreign:_undone",
    "return min(found, key=lambda each: (not each.gone, each.rollback.is_completed))",
    "return found[-1]",
)
FILES_NOT_LOOKED_FOR = Planted(
    "files are not looked for",
    "a decided commit is published although its files are gone",
    "occ.publish:publish",
    " or bool(files_gone())",
    "",
)
NOT_AWAITED = Planted(
    "a plan without content",
    "a rollback whose plan is being written is taken for one of something else",
    "occ.publish:plans_awaited",
    "for _ in range(TORN_LOOKS):",
    "for _ in ():",
)
TOO_EARLY = Planted(
    "an overlap that comes late",
    "nobody looks for overlaps after the look that follows the commit",
    "occ.foreign:LookBack.look",
    'late = [each for each in overlaps(known) if (each.second.completion or "") > looked_at]',
    "late = []",
)
UNMET = Planted(
    "an unmet engine",
    "nobody looks for commits of which the log has no decision",
    "occ.foreign:look_for_first_meeting",
    "suspects = sorted(_without_decision(table, timeline, view, first), key=lambda i: i.completion or i.requested)",
    "suspects = []",
)
UNREAD_DECISIONS = Planted(
    "decisions that were not read",
    "commits of lakelock whose decisions this process has not read are taken for another engine's, and read",
    "occ.log:DecisionLog.without_decision",
    "return found if len(found) > unread else []",
    "return found",
)
WITHDRAWN_BY_NOBODY = Planted(
    "withdrawn by nobody",
    "a writer whose instant was rolled back without a decision does not take that for the sign of another engine",
    "occ.commit:Commit._ensure_pending",
    "if since is None and view.boundary <= self._baseline.first:",
    "if False:",
)
WITHDRAWN_BY_OTHERS = Planted(
    "withdrawn by others",
    "a writer that looked at the log before it was rolled back does not look again for the decision",
    "occ.commit:Commit._ensure_pending",
    "since = decided_for(instant, view.decisions)",
    "since = None",
)
LATE_FILES = Planted(
    "late files of an undone commit",
    "the files of late tasks stay, of which a rollback removed the markers while their commit was completed",
    "occ.foreign:remove_strays_of_undone",
    "strays = sorted(key for files in table.io.gather(looks) for key in files if key not in named)",
    "strays = []",
)
LOOKED_FOR_TWICE = Planted(
    "undone commits for ever",
    "each run of upkeep lists the partitions of each undone commit",
    "occ.foreign:remove_strays_of_undone",
    "if now_s >= until_s[commit.requested]:",
    "if False:",
)
UNDONE_IN_THE_ARCHIVE = Planted(
    "undone in the archive",
    "an archived commit that a rollback names is told as rejected",
    "occ.publish:fate_of",
    "return InstantFate.GONE if archived_write(table.storage, instant) is None else InstantFate.COMMITTED",
    "gone = is_rolled_back(table, timeline, instant) or archived_write(table.storage, instant) is None\n"
    "    return InstantFate.GONE if gone else InstantFate.COMMITTED",
)
REPAIRED_BY_A_LISTING = Planted(
    "repaired by what is seen",
    "a repair takes out the file groups that a listing shows, and leaves those to a checkpoint whose files are gone",
    "occ.restore:plan_repair",
    "    for group in sorted(touched.keys() - replaced.keys()):\n",
    "    for group in sorted(touched.keys() & {file.group for file in now.files}):\n",
)
