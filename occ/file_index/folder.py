"""The folder of checkpoints: numbered, each made by whoever is first, the newest two kept."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from lakelock.errors import CorruptTableError, StorageError, StorageUnavailable
from lakelock.storage import Storage
from lakelock.table import layout
from lakelock.table.checkpoint import Checkpoint, LaterFormat

WHOLE_BYTES = 8_000_000
"""Up to this size a checkpoint is read by one request, and kept in memory; of a larger one, only the needed parts are read."""
KEPT = 3
"""How many checkpoints a process remembers."""


class CheckpointFolder:
    """The checkpoints of a table, as this process has read them. `alert` is called for those that cannot be read."""

    def __init__(self, storage: Storage, alert: Callable[[str], None]) -> None:
        self._storage, self._alert = storage, alert
        self._loaded: dict[int, Checkpoint] = {}
        self._unreadable: set[int] = set()
        self._sizes: dict[int, int] = {}

    @property
    def loaded(self) -> list[Checkpoint]:
        """The checkpoints already in memory, newest first."""
        return [self._loaded[number] for number in sorted(self._loaded, reverse=True)]

    @property
    def listed(self) -> list[int]:
        """The numbers of the newest listing, newest first."""
        return sorted(self._sizes, reverse=True)

    def is_settled(self, number: int) -> bool:
        """Whether looking again would not help: it was loaded, or cannot be read."""
        return number in self._loaded or number in self._unreadable

    def numbers(self) -> list[int]:
        """The existing numbers, newest first. One listing."""
        found = {layout.checkpoint_number(item.key): item.size_bytes for item in self._storage.list(layout.CHECKPOINTS)}
        self._sizes = {number: size for number, size in found.items() if number is not None}
        # One that others have removed still serves a transaction whose baseline is old.
        self._loaded = {number: self._loaded[number] for number in sorted(self._loaded)[-KEPT:]}
        return self.listed

    def load(self, number: int) -> Checkpoint | None:
        """A checkpoint that was listed; None if it is gone, damaged, or of a later version of lakelock."""
        if number in self._loaded or number in self._unreadable:
            return self._loaded.get(number)
        key = layout.checkpoint(number)
        try:
            if self._sizes.get(number, 0) <= WHOLE_BYTES:
                stored = self._storage.get(key)
                if stored is None:
                    return None
                self._loaded[number] = Checkpoint.from_bytes(stored.data, key)
            else:
                self._loaded[number] = Checkpoint.opened(partial(self._storage.open_input, key), key)
        except LaterFormat:
            self._unreadable.add(number)
        except StorageUnavailable:
            raise
        except (CorruptTableError, StorageError) as error:
            self.give_up(number, error)
        return self._loaded.get(number)

    def give_up(self, number: int, error: CorruptTableError | StorageError) -> None:
        """Do without a checkpoint that turned out to be unreadable."""
        self._loaded.pop(number, None)
        if number not in self._unreadable:
            self._unreadable.add(number)
            self._alert(f"checkpoint {number} of the file index is not used: {error.message}")

    def number_of(self, checkpoint: Checkpoint) -> int | None:
        """The number under which it was loaded."""
        return next((number for number, one in self._loaded.items() if one is checkpoint), None)

    def put(self, number: int, checkpoint: Checkpoint) -> bool:
        """Make a checkpoint unless somebody has already made it, and remove those that it made superfluous."""
        if self._storage.put_if_absent(layout.checkpoint(number), checkpoint.to_bytes()) is None:
            return False
        readable = [known for known in sorted(self._sizes, reverse=True) if known not in self._unreadable]
        self._loaded[number] = checkpoint
        if readable:
            self._storage.delete(layout.checkpoint(known) for known in sorted(self._sizes) if known < readable[0])
        self._sizes[number] = 0
        return True
