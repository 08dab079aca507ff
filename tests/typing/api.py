"""Never executed: what a type checker must make of the public names, as users write them."""

from __future__ import annotations

from typing_extensions import assert_type

from lakelock import CommitOutcomeUnknown, ConflictError, LakelockError, Settings, SettingsError, __version__
from lakelock.conflict import Conflict
from lakelock.settings.resolver import Resolved

assert_type(__version__, str)

resolved = Settings.resolve({"lock.wait_s": 5}, {"spark.lakelock.lock.lease_s": "30"}, "configs/storage.toml")
assert_type(resolved, Resolved)
assert_type(resolved.settings, Settings)
assert_type(resolved.settings.lock.wait_s, float)
assert_type(resolved.settings.retry.attempts, int)
assert_type(resolved.settings.write.merge_schema, bool)
assert_type(resolved.warnings, tuple[str, ...])

try:
    ...
except ConflictError as error:
    assert_type(error.conflict, Conflict)
    assert_type(error.retryable, bool)
except CommitOutcomeUnknown as error:
    assert_type(error.hint, str)
except SettingsError as error:
    assert_type(error.as_dict(), dict[str, object])
except LakelockError as error:
    assert_type(error.details, dict[str, object])
