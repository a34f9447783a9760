"""The hub: order, filters, and that a slow subscriber holds up nobody."""

from __future__ import annotations

import asyncio

import pytest

from controlplane.hub import Event, Hub, HubFullError, Subscription


async def seen(subscription: Subscription) -> list[int]:
    return [event.id async for event in subscription.events() if event is not None]


def event(number: int, engine_id: str = "a") -> Event:
    return Event(number, engine_id, "{}")


async def test_every_subscriber_gets_every_event_in_order() -> None:
    hub = Hub()
    with hub.subscribe() as one, hub.subscribe() as two:
        for number in range(1, 6):
            hub.publish(event(number))
        hub.close()
        assert await seen(one) == [1, 2, 3, 4, 5]
        assert await seen(two) == [1, 2, 3, 4, 5]


async def test_a_subscriber_of_one_engine_gets_no_other() -> None:
    hub = Hub()
    with hub.subscribe("b") as one:
        for number in range(1, 6):
            hub.publish(event(number, "a" if number % 2 else "b"))
        hub.close()
        assert await seen(one) == [2, 4]


async def test_a_waiting_reader_wakes_for_the_next_event() -> None:
    hub = Hub()
    with hub.subscribe() as one:
        events = one.events()
        waiting = asyncio.ensure_future(anext(events))
        await asyncio.sleep(0)
        assert not waiting.done()
        hub.publish(event(7))
        assert await waiting == event(7)
        await events.aclose()


async def test_a_slow_subscriber_is_dropped_and_the_others_go_on() -> None:
    hub = Hub(queue_events=3)
    with hub.subscribe() as slow, hub.subscribe() as quick:
        reader = quick.events()
        for number in range(1, 11):
            hub.publish(event(number))
            assert await anext(reader) == event(number)
        assert slow.dropped
        assert await seen(slow) == []
        assert (hub.clients, hub.dropped) == (1, 1)
        await reader.aclose()
    assert hub.clients == 0


async def test_a_dropped_subscriber_was_never_shown_a_later_event_than_a_missed_one() -> None:
    hub = Hub(queue_events=3)
    with hub.subscribe() as slow:
        reader = slow.events()
        for number in range(1, 3):
            hub.publish(event(number))
        got = [await anext(reader)]
        for number in range(3, 10):
            hub.publish(event(number))
        got += [one async for one in reader]
        # Whatever it got is a prefix: resuming after the last one loses nothing.
        assert got == [event(number) for number in range(1, len(got) + 1)]


async def test_a_closed_hub_ends_old_and_new_streams() -> None:
    hub = Hub()
    with hub.subscribe() as one:
        hub.close()
        assert await seen(one) == []
    with hub.subscribe() as late:
        assert await seen(late) == []


async def test_more_subscribers_than_allowed_are_refused() -> None:
    hub = Hub(max_subscribers=1)
    with hub.subscribe(), pytest.raises(HubFullError, match="1 event streams"):
        hub.subscribe()
    with hub.subscribe():
        assert hub.clients == 1


async def test_silence_is_told_and_the_stream_goes_on() -> None:
    hub = Hub()
    with hub.subscribe() as one:
        reader = one.events(silence_s=0.01)
        assert await anext(reader) is None
        assert await anext(reader) is None
        hub.publish(event(1))
        assert await anext(reader) == event(1)
        await reader.aclose()


async def test_events_of_a_busy_moment_come_in_one_batch_and_the_first_at_once() -> None:
    hub = Hub()
    with hub.subscribe() as one:
        reader = one.batches()
        hub.publish(event(1))
        assert await anext(reader) == [event(1)]
        waiting = asyncio.ensure_future(anext(reader))
        for number in range(2, 40):
            await asyncio.sleep(0)
            hub.publish(event(number))
        assert await waiting == [event(number) for number in range(2, 40)]
        await reader.aclose()


async def test_a_batch_is_not_gathered_into_the_last_half_of_the_queue(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("controlplane.hub.GATHER_S", 600.0)
    hub = Hub(queue_events=8)
    with hub.subscribe() as one:
        reader = one.batches()
        hub.publish(event(1))
        assert await anext(reader) == [event(1)]
        got: list[Event] = []
        for first in range(2, 42, 4):
            waiting = asyncio.ensure_future(anext(reader))
            for number in range(first, first + 4):
                await asyncio.sleep(0)
                hub.publish(event(number))
            got += await waiting
        assert got == [event(number) for number in range(2, 42)]
        assert not one.dropped
        await reader.aclose()


async def test_a_gathering_reader_ends_with_the_hub(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("controlplane.hub.GATHER_S", 600.0)
    hub = Hub()
    with hub.subscribe() as one:
        reader = one.batches()
        hub.publish(event(1))
        assert await anext(reader) == [event(1)]
        waiting = asyncio.ensure_future(anext(reader))
        await asyncio.sleep(0)
        hub.publish(event(2))
        hub.close()
        assert await waiting == [event(2)]
        assert [batch async for batch in reader] == []
