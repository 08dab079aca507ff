"""Talking to Redis through redis-py: one server, the one that Sentinels name, or the one of a cluster that owns the key.

redis-py's own retries are off: whoever waits for the lock tries again within its own bound, and a renewal must not hang.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

from lakelock.clock import Runtime
from lakelock.errors import ProviderUnavailable
from lakelock.providers.redis_address import RedisAddress
from lakelock.providers.redis_scripts import Names, Script
from lakelock.settings_redis import RedisSettings

_REFUSED = ("NOPERM", "NOAUTH", "WRONGPASS", "WRONGTYPE", "ERR ")


class RedisClient:
    """Runs scripts on the server that has the lock. Connects when it is first needed."""

    def __init__(self, address: RedisAddress, settings: RedisSettings, keys: Names, longest_s: float) -> None:
        self._driver = _driver()
        self._address, self._settings, self._keys = address, settings, keys
        self._timeout_s = min(settings.socket_timeout_s, longest_s)
        self._heads: dict[str, tuple[str | bytes, ...]] = {}
        self._redis: Any = None
        self._finder: Any = None

    def run(self, script: Script, *arguments: str | int) -> Any:
        """The script's answer; `ProviderUnavailable` when there is none, and then it may or may not have run."""
        with self.trouble():
            redis = self.redis()
            try:
                return redis.execute_command(*self._by_sha(script, arguments))
            except self._driver.exceptions.NoScriptError:
                return redis.execute_command(*self._by_text(script, arguments))

    def run_replicated(self, script: Script, *arguments: str | int) -> tuple[Any, int]:
        """The script's answer, and how many replicas have what this connection wrote: asked on the same connection."""
        # The answer of WAIT must come before the request is given up.
        wait_ms = round(min(self._settings.wait_replicas_timeout_s, 0.8 * self._timeout_s) * 1000)
        with self.trouble():
            for command in (self._by_sha(script, arguments), self._by_text(script, arguments)):
                pipeline = self.redis().pipeline(transaction=False)
                pipeline.execute_command(*command)
                pipeline.execute_command("WAIT", self._settings.wait_replicas, wait_ms)
                answer, replicas = pipeline.execute(raise_on_error=False)
                if isinstance(answer, self._driver.exceptions.NoScriptError):
                    continue
                for each in (answer, replicas):
                    if isinstance(each, Exception):
                        raise each
                return answer, int(replicas)
        raise ProviderUnavailable(f"{self._address.place} forgets scripts at once", hint="ask who calls SCRIPT FLUSH there")

    def eviction_policy(self) -> str:
        """What the server does when its memory is full; "" where that cannot happen or may not be asked."""
        with self.trouble():
            try:
                memory = self.redis().info("memory")
            except self._driver.exceptions.NoPermissionError:
                return ""
        return str(memory.get("maxmemory_policy", "")) if memory.get("maxmemory") else ""

    def listen(self, channel: str) -> Ear:
        """An ear that is known to be subscribed on return."""
        with self.trouble():
            subscription = self.redis().pubsub()
            subscription.subscribe(channel)
            answer = subscription.get_message(timeout=self._timeout_s)
            if answer is None or answer["type"] != "subscribe":
                subscription.close()
                raise ProviderUnavailable(f"{self._address.place} did not answer SUBSCRIBE", hint="is pub/sub allowed there?")
        return Ear(self, subscription)

    def close(self) -> None:
        """Let go of all connections; the next request makes new ones."""
        before, self._redis, self._finder = (self._redis, self._finder), None, None
        for each in before:
            if each is not None:
                with suppress(Exception):
                    each.close()

    def redis(self) -> Any:
        """The client of the server that has the lock now."""
        if self._redis is None:
            self._redis = self._connected()
        return self._redis

    @contextmanager
    def trouble(self) -> Iterator[None]:
        """Turn the driver's errors into ours."""
        driver = self._driver.exceptions
        try:
            yield
        except (driver.RedisError, OSError, ValueError) as error:  # ValueError: another thread closed this provider
            if self._address.kind == "cluster":
                # Another server may own the key by now. Nothing is closed: other threads may be in the middle of a request.
                self._redis = self._finder = None
            text = str(error)
            refused = isinstance(error, (driver.AuthenticationError, driver.NoPermissionError)) or (
                type(error) is driver.ResponseError and text.startswith(_REFUSED)
            )
            raise ProviderUnavailable(
                f"Redis at {self._address.place} {'refused' if refused else 'gave no answer'}: {text or type(error).__name__}",
                hint="check the user, the password and what its ACL allows: scripts, the keys and channels "
                f"{self._keys.names[0]}*"
                if refused
                else "check that the server runs and is reachable from here, and redis.socket_timeout_s",
                final=refused,
            ) from error

    def _head(self, command: str, name: bytes) -> tuple[str | bytes, ...]:
        names = [each.encode() for each in self._keys.names]
        return (command, name, b"%d" % len(names), *names)

    def _by_sha(self, script: Script, arguments: Sequence[str | int]) -> tuple[str | bytes | int, ...]:
        head = self._heads.get(script.sha)
        if head is None:
            head = self._heads[script.sha] = self._head("EVALSHA", script.sha.encode())
        return (*head, *arguments)

    def _by_text(self, script: Script, arguments: Sequence[str | int]) -> tuple[str | bytes | int, ...]:
        return (*self._head("EVAL", script.text.encode()), *arguments)

    def _connected(self) -> Any:
        driver, options = self._driver, self._options()
        if self._address.kind == "server":
            host, port = self._address.hosts[0]
            return driver.Redis(host=host, port=port, db=self._address.db, **options)
        if self._address.kind == "sentinel":
            users = {
                "username": self._settings.sentinel_username or None,
                "password": self._settings.sentinel_password or None,
            }
            sentinel = driver.Sentinel(self._address.hosts, sentinel_kwargs=options | users)
            self._finder = _Closing(sentinel.sentinels)
            return sentinel.master_for(self._address.service, db=self._address.db, **options)
        nodes = [driver.cluster.ClusterNode(host, port) for host, port in self._address.hosts]
        cluster = self._finder = driver.RedisCluster(startup_nodes=nodes, require_full_coverage=False, **options)
        return cluster.get_redis_connection(cluster.get_node_from_key(self._keys.names[0]))

    def _options(self) -> dict[str, Any]:
        settings = self._settings
        options: dict[str, Any] = {
            "username": self._address.username or settings.username or None,
            "password": self._address.password or settings.password or None,
            "socket_timeout": self._timeout_s,
            "socket_connect_timeout": settings.connect_timeout_s,
            "socket_keepalive": True,
            "retry": self._driver.retry.Retry(self._driver.backoff.NoBackoff(), 0),
            "client_name": "lakelock",
            "protocol": 2,
        }
        if self._address.tls:
            options |= {
                "ssl": True,
                "ssl_ca_certs": settings.tls_ca_file or None,
                "ssl_certfile": settings.tls_cert_file or None,
                "ssl_keyfile": settings.tls_key_file or None,
                "ssl_password": settings.tls_key_password or None,
                "ssl_check_hostname": settings.tls_check_hostname,
            }
        return options


class Ear:
    """One subscription: hears that it is this writer's turn."""

    def __init__(self, client: RedisClient, subscription: Any) -> None:
        self._client, self._subscription = client, subscription

    def wait(self, at_most_s: float, runtime: Runtime) -> bool:
        """Whether something was said within that time. `ProviderUnavailable` when the connection is gone."""
        until_s = runtime.monotonic_s() + at_most_s
        with self._client.trouble():
            while (left_s := until_s - runtime.monotonic_s()) > 0:
                heard = self._subscription.get_message(timeout=left_s)
                if heard is not None and heard["type"] == "message":
                    return True
        return False

    def forget(self) -> None:
        """Drop what was said before, so that it is not taken for news."""
        with self._client.trouble():
            while self._subscription.get_message(timeout=0) is not None:
                pass

    def close(self) -> None:
        with suppress(Exception):
            self._subscription.close()


class _Closing:
    """Several clients that are closed together."""

    def __init__(self, clients: Sequence[Any]) -> None:
        self._clients = clients

    def close(self) -> None:
        for client in self._clients:
            client.close()


def _driver() -> Any:
    """redis-py, without its types: they cover only part of it."""
    try:
        import redis
    except ImportError as error:
        raise ProviderUnavailable(
            "the lock in Redis needs the package redis, which is not installed",
            hint="pip install 'lakelock[redis]'",
            final=True,
        ) from error
    return redis
