"""A Kerberos realm of its own: a KDC from Debian's packages on a free loopback port, with all its files in one folder.

Only the installation of the packages needs root; it is done where root and apt are available. The Python packages
gssapi (for the metastore) and kerberos (for ZooKeeper) are compiled once per virtual environment.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property
from importlib.util import find_spec
from pathlib import Path

from tests.given_servers import ServerFailed, ServerMissing
from tests.servers.process import ServerProcess

REALM = "LAKELOCK.TEST"
FOLDER = Path(sys.prefix) / "lakelock-servers"

_PYTHON = FOLDER / "kerberos"
_FAILED = FOLDER / "kerberos.failed"
_PROGRAMS = ("krb5kdc", "kdb5_util", "kadmin.local", "kinit")
_MODULES = {"gssapi": "gssapi>=1.8", "kerberos": "kerberos>=1.3"}
_PACKAGES = ("krb5-kdc", "krb5-admin-server", "krb5-user")
_TO_COMPILE = ("gcc", "libc6-dev", "libkrb5-dev")
_UPDATE_S, _INSTALL_S, _COMPILE_S, _ANSWER_S = 60.0, 200.0, 300.0, 20.0

# Names are used as they are, without DNS. TCP only, because the port is known to be free for TCP.
_CLIENT = """[libdefaults]
 default_realm = {realm}
 dns_lookup_kdc = false
 dns_lookup_realm = false
 dns_canonicalize_hostname = false
 rdns = false
 udp_preference_limit = 1
[realms]
 {realm} = {{
  kdc = 127.0.0.1:{port}
 }}
[domain_realm]
 localhost = {realm}
"""
_SERVER = """[kdcdefaults]
 kdc_listen = 127.0.0.1:{port}
 kdc_tcp_listen = 127.0.0.1:{port}
[realms]
 {realm} = {{
  database_name = {folder}/principal
  key_stash_file = {folder}/stash
  acl_file = {folder}/acl
 }}
[logging]
 kdc = FILE:{folder}/kdc.log
"""


class Realm(ServerProcess):
    """The realm `LAKELOCK.TEST` and its KDC; `environment` makes a process, C library or command, live in it."""

    title = "the KDC"
    up_within_s = _ANSWER_S

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        places = {"realm": REALM, "port": self.port, "folder": self.folder}
        self.configuration = self.folder / "krb5.conf"
        self.configuration.write_text(_CLIENT.format(**places))
        (self.folder / "kdc.conf").write_text(_SERVER.format(**places))
        self._run("kdb5_util", "create", "-s", "-r", REALM, "-P", "a test's master key")

    @cached_property
    def environment(self) -> Mapping[str, str]:
        path = os.pathsep.join([*filter(None, [os.environ.get("PYTHONPATH")]), str(_PYTHON)])
        files = {"KRB5_CONFIG": str(self.configuration), "KRB5_KDC_PROFILE": str(self.folder / "kdc.conf")}
        return {**files, "PYTHONPATH": path}

    def keytab(self, *names: str) -> Path:
        """A new file with the keys of these principals, which are created."""
        path = self.folder / f"{names[0].replace('/', '_')}.keytab"
        for name in names:
            self._run("kadmin.local", "-r", REALM, "-q", f"addprinc -randkey {name}")
            self._run("kadmin.local", "-r", REALM, "-q", f"ktadd -k {path} {name}")
        return path

    def kinit(self, keytab: Path, name: str, cache: Path, *options: str) -> None:
        """Put a ticket into `cache`, as a user's `kinit` does."""
        self._run("kinit", "-k", "-t", str(keytab), "-c", str(cache), *options, name)

    def command(self) -> list[str]:
        return [_program("krb5kdc") or "krb5kdc", "-n", "-r", REALM]

    def is_up(self) -> bool:
        return "commencing operation" in self._said()

    def stop(self) -> None:
        super().stop()
        (self.folder / "kdc.log").unlink(missing_ok=True)

    def _said(self) -> str:
        log = self.folder / "kdc.log"
        return log.read_text() if log.exists() else ""

    def _run(self, program: str, *arguments: str) -> None:
        done = subprocess.run(
            [_program(program) or program, *arguments],
            env=os.environ | self.environment,
            capture_output=True,
            text=True,
            timeout=_ANSWER_S,
            check=False,
        )
        # kadmin.local reports most failures in words only.
        if done.returncode != 0 or "while" in done.stderr:
            raise ServerFailed(f"{program} failed: {done.stderr[-1000:]}")


@contextmanager
def kerberos_realm(folder: Path) -> Iterator[Realm]:
    """A realm whose KDC runs; `ServerMissing` where it cannot be started."""
    require()
    with Realm(folder) as realm:
        yield realm


def require() -> None:
    """Install Kerberos and the Python packages where necessary; `ServerMissing` says what is still missing."""
    if _lacking() and not _FAILED.exists() and os.access(sys.prefix, os.W_OK):
        FOLDER.mkdir(exist_ok=True)
        with (FOLDER / "kerberos.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if _lacking() and not _FAILED.exists():
                told = _install()
                if _lacking():
                    _FAILED.write_text(told)
    if lacking := ", ".join(_lacking()):
        why = f" ({_FAILED.read_text().strip()[-300:]} and {_FAILED} says not to try again)" if _FAILED.exists() else ""
        raise ServerMissing(f"needs Kerberos, and {lacking} is missing{why}: apt-get install -y {' '.join(_PACKAGES)}")


def _lacking() -> list[str]:
    if _PYTHON.exists() and str(_PYTHON) not in sys.path:
        sys.path.append(str(_PYTHON))
    python = [f"the Python package {name} (pip install 'lakelock[kerberos]')" for name in _MODULES if find_spec(name) is None]
    return [name for name in _PROGRAMS if _program(name) is None] + python


def _program(name: str) -> str | None:
    """The path of a program; Debian keeps servers in folders that are only on root's path."""
    return shutil.which(name, path=os.environ.get("PATH", "") + ":/usr/sbin:/sbin")


def _install() -> str:
    """Install what is missing; what went wrong, or an empty text."""
    if os.geteuid() != 0 or shutil.which("apt-get") is None:
        return "not root, or no apt-get here"
    compiles = any(find_spec(name) is None for name in _MODULES)
    headers = Path(sysconfig.get_path("include")) / "Python.h"
    packages = [*_PACKAGES, *(_TO_COMPILE if compiles else ()), *(["python3-dev"] if compiles and not headers.exists() else ())]
    quiet = {"DEBIAN_FRONTEND": "noninteractive"}
    told = _run(["apt-get", "update", "-qq"], _UPDATE_S, quiet)
    told += _run(["apt-get", "install", "-y", "-qq", "--no-install-recommends", *packages], _INSTALL_S, quiet)
    if not compiles:
        return told
    arriving = _PYTHON.with_suffix(".arriving")
    shutil.rmtree(arriving, ignore_errors=True)
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-input", "--target", str(arriving), *_MODULES.values()]
    failed = _run(pip, _COMPILE_S, {"CFLAGS": "-O0"})
    if not failed:
        shutil.rmtree(_PYTHON, ignore_errors=True)
        arriving.rename(_PYTHON)
    return told + failed


def _run(command: Sequence[str], within_s: float, environment: Mapping[str, str]) -> str:
    try:
        done = subprocess.run(
            command,
            env=os.environ | environment,
            capture_output=True,
            text=True,
            timeout=within_s,
            check=False,
            stdin=subprocess.DEVNULL,
        )
    except subprocess.TimeoutExpired:
        return f"{command[0]} did not end within {within_s:.0f} s; "
    return f"{Path(command[0]).name} said: {done.stderr[-300:]}; " if done.returncode else ""
