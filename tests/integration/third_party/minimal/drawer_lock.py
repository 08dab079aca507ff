"""A lock that is a dictionary: the least that a provider must say. Between the threads of one process only."""

from lakelock.providers import Attempt, Holder, Lease, LockState, Opening, PollingProvider, Strength

held: dict[str, Lease] = {}  # the "service": the latest lease of each lock
tokens: dict[str, int] = {}


class DrawerLockProvider(PollingProvider):
    def __init__(self, opening: Opening) -> None:
        super().__init__(opening)
        self.key = opening.uri.partition(":")[2] or self.table

    @property
    def identity(self) -> str:
        return f"drawer:{self.key}"

    @property
    def strength(self) -> Strength:
        return Strength(
            exclusion="between threads of one process only",
            token="a counter of this process",
            crash_release="at once, the lock dies with its process",
            failover="none",
            clock_assumption="none",
            fairness="in order of arrival for one provider object; polling between several",
            cost="none",
        )

    def attempt(self, attempt: Attempt) -> Lease | Holder | None:
        before = held.get(self.key)
        if before is not None and before.lost is None:
            return self._holder(before)
        tokens[self.key] = tokens.get(self.key, 0) + 1
        lease = held[self.key] = self.new_lease(attempt, tokens[self.key], self.runtime.monotonic_s())
        return lease

    def extend(self, lease: Lease) -> None:
        if held.get(self.key) is not lease:
            raise self.taken_over(lease, "was taken away")
        lease.extend(self.runtime.monotonic_s())

    def give_back(self, lease: Lease) -> None:
        if held.get(self.key) is lease:
            del held[self.key]

    def inspect(self) -> LockState:
        lease = held.get(self.key)
        return LockState(self._holder(lease) if lease and lease.lost is None else None, tokens.get(self.key, 0))

    def break_lock(self, token: int, *, force: bool = False) -> None:
        state = self.inspect()
        self.ensure_latest(token, state.token)
        if state.holder is None:
            return
        if not force:
            raise self.still_held(state.holder, "whose lease runs")
        held.pop(self.key).lose("taken-over", "broken by an operator")

    def probe(self) -> None:
        """Nothing can be missing."""

    def _holder(self, lease: Lease) -> Holder:
        held_ms = 1000 * (self.runtime.monotonic_s() - lease.began_s)
        since_ms, left_s = round(self.runtime.now_ms() - held_ms), lease.remaining_s()
        return Holder(lease.grant, lease.owner, lease.token, lease.lease_s, since_ms=since_ms, left_s=left_s)
