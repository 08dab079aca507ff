"""Each file of `configs/` runs on its real service; only the address and what the test server needs are changed."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.api import LocalStorage, SystemRuntime, WriterIdentity, open_provider
from tests.integration.matrix import IN_PROCESS, START_SOON, Services
from tests.servers import SERVICES
from tests.sizes import but_in_ci

from lakelock.errors import LockTimeout
from lakelock.settings import Settings


@pytest.mark.parametrize("name", [IN_PROCESS, *but_in_ci(SERVICES, START_SOON)])
def test_an_example_file_runs(name: str, services: Services, tmp_path: Path) -> None:
    changed: dict[str, object] = {}
    if name != IN_PROCESS:
        service = services(name)
        changed = {"lock.provider": service.url("example"), **service.options}
    settings = Settings.resolve(changed, file=Path(__file__).parents[2] / "configs" / f"{name}.toml").settings
    runtime, storage = SystemRuntime(), LocalStorage(tmp_path)
    identity = WriterIdentity.of_this_process(runtime, "example")
    first, second = (open_provider(settings, storage, runtime, identity) for _ in range(2))
    first.probe()
    lease = first.acquire(wait_s=30)
    assert lease.lease_s == settings.lock.lease_s
    with pytest.raises(LockTimeout):
        second.acquire(wait_s=0.1)
    first.renew(lease)
    first.release(lease)
    assert lease.lost is not None and lease.lost.reason == "released"
    after = second.acquire(wait_s=12)
    assert after.token > lease.token
    first.close()
    second.close()
