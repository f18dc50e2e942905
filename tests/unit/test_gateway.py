"""When the services open and close."""

import asyncio
import sys
import types
from typing import Any

import pytest

from philorag.errors import DatabaseUnavailable
from philorag.gateway import Gateway
from philorag.plugins import LoadedPlugin, Plugin
from philorag.settings import Settings


class FakeServices:
    """Services that open when `gate` is set; each opening and closing is counted."""

    def __init__(self) -> None:
        self.gate = asyncio.Event()
        self.gate.set()
        self.failures: list[Exception] = []
        self.opened = self.closed = self.callers = 0
        self.close_gate: asyncio.Event | None = None

    async def open(self, settings):
        await self.gate.wait()
        if self.failures:
            raise self.failures.pop(0)
        self.opened += 1
        return self

    async def local_caller(self):
        self.callers += 1
        return object()

    async def close(self):
        if self.close_gate is not None:
            await self.close_gate.wait()
        self.closed += 1


@pytest.fixture
async def services(monkeypatch):
    fake = FakeServices()
    module = types.ModuleType("philorag.services")
    module.__dict__["Services"] = fake
    monkeypatch.setitem(sys.modules, "philorag.services", module)
    return fake


@pytest.fixture
async def gateway(services):
    return Gateway(Settings(), [])


def plugin(name: Any, **members: Any) -> Any:
    return LoadedPlugin(name, "d", "1", plugin=Plugin(name, lambda _: None, **members))


async def test_services_open_once(gateway, services):
    """Calls that wait together get one and the same services."""
    assert list(await asyncio.gather(gateway.services(), gateway.services())) == [services, services]
    assert services.opened == 1


async def test_begin_opens_in_the_background(gateway, services):
    """`begin` returns at once, and a later call finds the same opening."""
    gateway.begin()
    gateway.begin()
    assert await gateway.services() is services
    assert services.opened == 1


async def test_a_failed_opening_is_told_and_tried_again(gateway, services):
    """What kept the services from opening reaches the caller; the next call tries again."""
    services.failures.append(DatabaseUnavailable("no", reason="unreachable"))
    with pytest.raises(DatabaseUnavailable):
        await gateway.services()
    assert await gateway.services() is services


async def test_a_call_that_gives_up_does_not_stop_the_opening(gateway, services):
    """A cancelled call leaves the opening to the others."""
    services.gate.clear()
    waiting = asyncio.create_task(gateway.services())
    await asyncio.wait([waiting], timeout=0)
    waiting.cancel()
    await asyncio.wait([waiting])
    services.gate.set()
    assert await gateway.services() is services
    assert services.opened == 1


async def test_the_caller_is_made_once(gateway, services):
    """Every call over stdio has the same caller."""
    assert await gateway.caller() is await gateway.caller()
    assert services.callers == 1


async def test_closing_without_opening_does_nothing(gateway, services):
    """A gateway whose services were never needed closes nothing."""
    await gateway.close()
    assert services.closed == 0


async def test_closing_waits_for_an_opening(gateway, services):
    """What is opening when the gateway closes is opened and closed, so that nothing is left running."""
    services.gate.clear()
    gateway.begin()
    closing = asyncio.create_task(gateway.close())
    await asyncio.wait([closing], timeout=0)
    services.gate.set()
    await closing
    assert (services.opened, services.closed) == (1, 1)


async def test_a_second_close_waits_for_the_first(gateway, services):
    """A signal during the end of input doesn't end the process before the database is released."""
    await gateway.services()
    services.close_gate = asyncio.Event()
    first, second = (asyncio.create_task(gateway.close()) for _ in range(2))
    _, waiting = await asyncio.wait([first, second], timeout=0)
    assert waiting == {first, second}
    services.close_gate.set()
    await asyncio.gather(first, second)
    assert services.closed == 1


async def test_after_closing_it_can_open_again(gateway, services):
    """A closed gateway opens for the next client."""
    await gateway.services()
    await gateway.close()
    await gateway.services()
    assert (services.opened, services.closed) == (2, 1)


async def test_an_opening_that_failed_closes_nothing(gateway, services):
    """After a failed opening there is nothing to close."""
    services.failures.append(RuntimeError())
    with pytest.raises(RuntimeError):
        await gateway.services()
    await gateway.close()
    assert services.closed == 0


async def test_plugins_start_after_and_stop_before_the_services(services):
    """A plugin is started with the open services and stopped while they still are."""
    seen: list[Any] = []

    async def start(given):
        seen.append(("start", given, services.opened))

    async def stop():
        seen.append(("stop", services.closed))

    gateway = Gateway(Settings(), [plugin("one", start=start, stop=stop), LoadedPlugin("out", "d", "1", problem="x")])
    await gateway.services()
    await gateway.close()
    assert seen == [("start", services, 1), ("stop", 0)]


async def test_a_plugin_that_fails_to_start_is_noted_and_not_stopped(services):
    """A plugin's failed start has its reason, keeps nobody from starting, and is not followed by a stop."""
    seen: list[Any] = []

    async def fail(_):
        raise ValueError("no licence in /etc/licence")

    async def note(*given):
        seen.append(given)

    gateway = Gateway(Settings(), [plugin("bad", start=fail, stop=note), plugin("good", start=note)])
    await gateway.services()
    await gateway.close()
    assert gateway.start_problems == {"bad": "it failed to start: ValueError: no licence in licence"}
    assert seen == [(services,)]


async def test_a_plugin_that_fails_to_stop_keeps_nothing_open(services):
    """The services close whatever a plugin does."""

    async def fail():
        raise ValueError

    gateway = Gateway(Settings(), [plugin("bad", stop=fail)])
    await gateway.services()
    await gateway.close()
    assert services.closed == 1
