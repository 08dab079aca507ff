"""A deterministic simulator of the engine: one seed decides every interleaving, fault, clock and crash, and replays it.

The code under test is the one that users run (`lakelock.occ`, `markers`, `providers`, `table`); only storage, time and threads
are simulated, through the same interfaces that production uses. `lakelock simulate` is the entry point.
"""
