"""One hypothesis profile for all property tests: no deadline, since a busy machine is not a failure."""

from __future__ import annotations

from hypothesis import settings

settings.register_profile("lakelock", deadline=None, print_blob=True)
settings.load_profile("lakelock")
