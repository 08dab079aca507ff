"""What a server that the environment names is to the tests: used, also behind a proxy, and not theirs to stop."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

import pytest
from tests.api import SystemRuntime, WriterIdentity, open_provider, open_storage
from tests.given_servers import ServerMissing

from lakelock.settings import Settings
from lakelock.testing.proxy import Proxy
from lakelock.testing.service import Service

Start = Callable[[Path], AbstractContextManager[Service]]


def check_given(start: Start, folder: Path, variable: str, own: Service) -> None:
    """`start` uses the server of `own`, which the environment names by another name, `localhost`, in `variable`."""
    if own.address:
        pytest.skip(f"{variable} was there before: all tests of the service use that server")
    with start(folder) as given:
        assert (given.host, given.port) == ("localhost", own.port)
        for change in (given.stop, given.start, given.pause, given.resume):
            with pytest.raises(ServerMissing, match=f"^the server of {variable} is not ours to stop$"):
                change()
        with Proxy(given.port, host=given.host, severs=given.sessions) as proxy:
            values = given.through(proxy.port, {"lock.provider": given.url("given"), **given.options})
            options = given.through(proxy.port, given.table_options)
            storage = open_storage(f"{given.tables}/given" if given.tables else str(folder / "table"), options)
            runtime = SystemRuntime()
            settings = Settings.resolve({**values, "lock.lease_s": 3, "lock.renew_s": 1}).settings
            provider = open_provider(settings, storage, runtime, WriterIdentity.of_this_process(runtime))
            lease = provider.acquire(wait_s=20)
            assert proxy.round_trips > 0, "the lock was taken past the proxy"
            provider.release(lease)
            provider.close()
