"""Which calls to a metastore are sent again, how often, and what is said in the end; and the call that tells the user's name.

Most errors here are the server's own: it puts the names that it is asked about into its SQL as they are, so a quotation mark
breaks it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from tests.api import EventKind
from tests.integration.metastore.metastore_world import World, take
from tests.servers.locks.metastore_proxy import MetastoreProxy

from lakelock.errors import ProviderUnavailable
from lakelock.providers.hive_metastore.client import Calls, LockRow, MetastoreClient, ServerError
from lakelock.providers.hive_metastore.connection import Address
from lakelock.settings.sections import HiveMetastoreSettings

_BREAKS_IT = "it's"


@pytest.fixture
def client(world: World, proxy: MetastoreProxy) -> Iterator[Callable[[int], MetastoreClient]]:
    """Makes a client of the metastore behind the proxy, which sends a call again so many times."""
    made: list[MetastoreClient] = []

    def make(retries: int) -> MetastoreClient:
        settings = HiveMetastoreSettings(failure_retries=retries, failure_delay_s=0.0, socket_timeout_s=60.0)
        made.append(MetastoreClient(world.runtime, settings, [Address("127.0.0.1", proxy.port)], "user", no_warning))
        return made[-1]

    yield make
    for each in made:
        each.close()


def no_warning(problem: str) -> None:
    raise AssertionError(problem)


def trying(proxy: MetastoreProxy, *troubles: str) -> Callable[[Calls], list[LockRow]]:
    """A call that first meets these troubles, one at a time, and then none."""
    left = list(troubles)

    def ask(calls: Calls) -> list[LockRow]:
        trouble = left.pop(0) if left else ""
        if trouble == "lost":
            proxy.lose_request.append("show_locks")
        return calls.show_locks(_BREAKS_IT if trouble == "failed" else "lakelock_test", "t")

    return ask


# --- which errors, and how often


@pytest.mark.parametrize("trouble", ["failed", "lost"])
@pytest.mark.parametrize("times", [0, 1, 3])
def test_a_call_is_sent_again_until_it_works_over_a_new_connection_each_time(
    client: Callable[[int], MetastoreClient], proxy: MetastoreProxy, trouble: str, times: int
) -> None:
    assert client(3).call(trying(proxy, *[trouble] * times), within_s=120) == []
    assert proxy.calls["show_locks"] == proxy.connections == 1 + times


@pytest.mark.parametrize("trouble", ["failed", "lost"])
@pytest.mark.parametrize("retries", [0, 2])
def test_a_call_is_sent_again_no_more_often_than_the_setting_says(
    client: Callable[[int], MetastoreClient], proxy: MetastoreProxy, trouble: str, retries: int
) -> None:
    with pytest.raises(ProviderUnavailable):
        client(retries).call(trying(proxy, *[trouble] * (retries + 1)), within_s=120)
    assert proxy.calls["show_locks"] == proxy.connections == 1 + retries


@pytest.mark.parametrize(
    ("troubles", "said"),
    [
        (("lost", "failed"), "failed: TApplicationException: Internal error processing show_locks"),
        (("failed", "lost"), "gave no answer: the metastore closed the connection"),
    ],
)
def test_the_last_error_is_the_one_that_is_told(
    client: Callable[[int], MetastoreClient], proxy: MetastoreProxy, troubles: tuple[str, ...], said: str
) -> None:
    with pytest.raises(ProviderUnavailable, match=f"127.0.0.1:{proxy.port} {said}"):
        client(1).call(trying(proxy, *troubles), within_s=120)


@pytest.mark.parametrize("trouble", ["failed", "lost"])
def test_a_call_that_must_not_run_twice_is_sent_once(
    client: Callable[[int], MetastoreClient], proxy: MetastoreProxy, trouble: str
) -> None:
    with pytest.raises(ProviderUnavailable):
        client(5).call(trying(proxy, trouble), within_s=120, repeat=False)
    assert proxy.calls["show_locks"] == 1


def test_a_call_that_the_metastore_does_not_know_is_sent_once(
    client: Callable[[int], MetastoreClient], proxy: MetastoreProxy
) -> None:
    with pytest.raises(ServerError, match="Invalid method name"):
        client(5).call(lambda calls: calls.call("no_such_call", ()), within_s=120)
    assert proxy.calls["no_such_call"] == 1


@pytest.mark.parametrize("kind", range(11))
def test_an_error_of_thrift_is_passing_unless_it_is_about_the_way_of_asking(
    client: Callable[[int], MetastoreClient], proxy: MetastoreProxy, kind: int
) -> None:
    unknown_method, wrong_name, invalid_transform, invalid_protocol, unsupported_client = 1, 3, 8, 9, 10
    proxy.fail = {"show_locks": [kind]}
    if kind in (unknown_method, wrong_name, invalid_transform, invalid_protocol, unsupported_client):
        with pytest.raises(ServerError, match=f"error of kind {kind}"):
            client(5).call(trying(proxy), within_s=120)
        assert proxy.calls["show_locks"] == 1
    else:
        assert client(5).call(trying(proxy), within_s=120) == []
        assert proxy.calls["show_locks"] == 2


def test_a_lock_asks_as_often_as_its_settings_say_and_goes_on_when_the_metastore_does(
    world: World, proxy: MetastoreProxy
) -> None:
    provider = world.writer("one", failure_retries=2, failure_delay_s=0.0, socket_timeout_s=60.0)
    proxy.fail = {"show_locks": [6] * 5}
    with pytest.raises(ProviderUnavailable, match="error of kind 6"):
        provider.inspect()
    assert proxy.calls["show_locks"] == 3
    assert provider.inspect().holder is None
    assert proxy.calls["show_locks"] == 6 and proxy.fail == {"show_locks": []}


# --- the user's name


def test_the_user_is_told_to_the_metastore_only_where_set_ugi_says_so(world: World, proxy: MetastoreProxy) -> None:
    silent = world.writer("silent", lease_s=4.0, set_ugi=False)
    silent.release(take(silent, wait_s=20))
    assert proxy.calls["set_ugi"] == 0 and proxy.calls["lock"] == proxy.connections == 1
    telling = world.writer("telling", lease_s=4.0)
    telling.release(take(telling, wait_s=20))
    assert proxy.calls["set_ugi"] == 1 and proxy.connections == 2


@pytest.mark.parametrize("kind", [1, 6])
def test_a_metastore_that_does_not_accept_the_name_is_used_all_the_same_and_it_is_told(
    world: World, proxy: MetastoreProxy, kind: int
) -> None:
    proxy.fail = {"set_ugi": [kind]}
    provider = world.writer("one", lease_s=4.0)
    provider.release(take(provider, wait_s=20))
    assert proxy.calls["set_ugi"] == proxy.calls["lock"] == proxy.connections == 1
    (told,) = world.seen
    problem = str(told.facts["problem"])
    assert told.kind is EventKind.ALERT and f"error of kind {kind}" in problem and f"127.0.0.1:{proxy.port}" in problem
