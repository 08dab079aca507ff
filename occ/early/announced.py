"""The file groups that one transaction has announced, and what it knows of its claims on them."""

from __future__ import annotations

from collections.abc import Iterable

from lakelock.markers.claim_context import ClaimContext
from lakelock.markers.claims import OwnClaims, Refusal
from lakelock.occ.early.detection import claim_groups
from lakelock.occ.open_table import OpenTable
from lakelock.table.layout import FileGroupId


class AnnouncedGroups:
    """What a transaction will rewrite, and the buckets that it will make. Not for several threads at once."""

    def __init__(self) -> None:
        self._claimed: set[FileGroupId] = set()
        self._new_buckets: set[FileGroupId] = set()
        self._unanswered: set[FileGroupId] = set()

    @property
    def claimed(self) -> frozenset[FileGroupId]:
        """The groups whose claims are this transaction's."""
        return frozenset(self._claimed)

    @property
    def rewritten(self) -> frozenset[FileGroupId]:
        """Those of them that exist already."""
        return frozenset(self._claimed - self._new_buckets)

    @property
    def new_buckets(self) -> frozenset[FileGroupId]:
        """Buckets that had no file group, claimed or not."""
        return frozenset(self._new_buckets)

    def add(self, groups: Iterable[FileGroupId], new_buckets: Iterable[FileGroupId]) -> list[FileGroupId]:
        """Note what will be written; the groups of it that are not claimed yet."""
        made = set(new_buckets)
        self._new_buckets |= made
        return sorted({*groups, *made} - self._claimed)

    def claim(self, table: OpenTable, context: ClaimContext, groups: Iterable[FileGroupId]) -> list[Refusal]:
        """Claim these groups, one conditional write each, in parallel; what was refused."""
        groups = tuple(groups)
        self._unanswered.update(groups)
        claimed, refused = claim_groups(table, context, groups)
        self._claimed.update(claimed)
        self._unanswered.difference_update(groups)
        return refused

    def release(self, table: OpenTable, instant: str) -> None:
        """Remove the claims before the transaction ends. If that raises, nobody knows whose they are now."""
        mine = self.own_claims(disturbed=False).keys(table.io, instant)
        self._unanswered |= self._claimed
        table.storage.delete(mine)
        self._claimed, self._unanswered = set(), set()

    def own_claims(self, *, disturbed: bool) -> OwnClaims:
        """What a withdrawal may remove. Whoever took this transaction for dead (`disturbed`) may have taken over its claims."""
        unsure = self._unanswered | (self._claimed if disturbed else set())
        return OwnClaims(frozenset(self._claimed - unsure), frozenset(unsure))
