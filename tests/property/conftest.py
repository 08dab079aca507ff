"""One hypothesis profile for all property tests.

No deadline, since a busy machine is not a failure. Laptops look for new examples; CI takes the same ones each time, so that
one commit has one result.
"""

from __future__ import annotations

import os

from hypothesis import settings

settings.register_profile("lakelock", deadline=None, print_blob=True, derandomize=bool(os.environ.get("CI")))
settings.load_profile("lakelock")
