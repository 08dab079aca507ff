"""Azure's blob storage as Microsoft's emulator, Azurite, answers: with conditional writes, in memory."""

from __future__ import annotations

import base64
import hashlib
import hmac
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from email.utils import formatdate
from pathlib import Path

from tests.given_servers import ServerMissing
from tests.servers.fetched.npm import OLDEST_NODE, NpmPackage
from tests.servers.process import ServerProcess

AZURITE = NpmPackage("azurite", "3", "dist/src/blob/main.js")
CONTAINER = "lake"
ACCOUNT = "devstoreaccount1"
KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
"""The account that the emulator has, and its well-known key."""
_VERSION = "2021-12-02"


class Azurite(ServerProcess):
    """One emulator, which forgets everything when it ends."""

    title = "azurite"
    up_within_s = 60.0

    def command(self) -> list[str]:
        place = ["--blobHost", "127.0.0.1", "--blobPort", str(self.port)]
        return ["node", str(AZURITE.path), *place, "--inMemoryPersistence", "--skipApiVersionCheck", "--silent"]

    @property
    def options(self) -> dict[str, str]:
        """Settings of lakelock below `storage.`."""
        endpoint = f"http://127.0.0.1:{self.port}/{ACCOUNT}"
        return {"account_name": ACCOUNT, "account_key": KEY, "endpoint": endpoint, "allow_http": "true"}

    def make(self, container: str) -> None:
        """Make a container: a request that no client of lakelock's sends, signed with the account's key."""
        headers = {"x-ms-date": formatdate(usegmt=True), "x-ms-version": _VERSION}
        signed = "".join(f"{name}:{value}\n" for name, value in sorted(headers.items()))
        text = "PUT" + 12 * "\n" + f"{signed}/{ACCOUNT}/{ACCOUNT}/{container}\nrestype:container"
        digest = hmac.new(base64.b64decode(KEY), text.encode(), hashlib.sha256).digest()
        headers["Authorization"] = f"SharedKey {ACCOUNT}:{base64.b64encode(digest).decode()}"
        url = f"http://127.0.0.1:{self.port}/{ACCOUNT}/{container}?restype=container"
        # Without a length, urllib would name a content type, which is part of what is signed.
        request = urllib.request.Request(url, method="PUT", headers=headers)
        urllib.request.urlopen(request, timeout=60).close()


@contextmanager
def azure_server(folder: Path) -> Iterator[dict[str, str]]:
    """The emulator with the container `lake` in it; the options by which lakelock reaches it."""
    if not AZURITE.is_there():
        raise ServerMissing(f"needs Azurite, and so Node {OLDEST_NODE} or newer with npm: apt-get install -y nodejs npm")
    with Azurite(folder) as azurite:
        azurite.make(CONTAINER)
        yield azurite.options
