"""The events of Nexmark, made from a seed and a number, so that everyone makes the same ones.

The model, as it is published for the Nexmark suite: an auction site on which people register, open auctions, and bid.
Of every 50 events the first is a new person, the next three are new auctions, the other 46 are bids. Ids count up
(people and auctions from 1000, categories from 10). Event ``n`` happens ``n / events_per_s`` seconds after the begin.

- Half of the bids go to the *hot* auction (the first of the newest hundred), the others to any of the last
  ``in_flight_auctions``, or to one that is opened a little later. Three quarters of the bids are by the hot bidder (the
  second of the newest hundred people), three quarters of the auctions by the hot seller (the first of them); the others
  by any of the last ``active_people``, or by someone who registers a little later: a bid may come before its auction.
- Prices are spread evenly over the orders of magnitude from 1 to 1,000,000 (in cents).
- An auction stays open for a random time; on average ``in_flight_auctions`` further ones are opened meanwhile.
- Half of the bids come by one of four well-known channels.
- ``extra`` fills each record up to about its average size.
- With ``out_of_order`` above 1, each group of so many events comes in another order.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from math import gcd
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

PERSON, AUCTION, BID = 0, 1, 2
_PERSON = (
    "id bigint, name string, email_address string, credit_card string, city string, state string, at timestamp, "
    "extra string"
)
_AUCTION = (
    "id bigint, item_name string, description string, initial_bid bigint, reserve bigint, at timestamp, "
    "expires timestamp, seller bigint, category bigint, extra string"
)
BID_FIELDS = "auction bigint, bidder bigint, price bigint, channel string, url string, at timestamp, extra string"
SCHEMA = f"event_type int, at timestamp, person struct<{_PERSON}>, auction struct<{_AUCTION}>, bid struct<{BID_FIELDS}>"
"""One stream of all events; of the three structs two are null."""

FIRST_ID = 1000
FIRST_CATEGORY = 10
CATEGORIES = 5
PERSONS_IN_50, AUCTIONS_IN_50, PERIOD = 1, 3, 50
HOT_BATCH = 100
LEAD = 10
"""How far ahead of what exists an id may be."""
BLOCK = 1000
"""Events that are made together, from one stream of random numbers: a block is a function of seed and number."""
_STATES = ("AZ", "CA", "ID", "OR", "WA", "WY")
_CITIES = (
    *("Phoenix", "Los Angeles", "San Francisco", "Boise", "Portland"),
    *("Bend", "Redmond", "Seattle", "Kent", "Cheyenne"),
)
_FIRST_NAMES = ("Peter", "Paul", "Luke", "John", "Saul", "Vicky", "Kate", "Julie", "Sarah", "Deiter", "Walter")
_LAST_NAMES = ("Shultz", "Abrams", "Spencer", "White", "Bartels", "Walton", "Smith", "Jones", "Noris")
_HOT_CHANNELS = ("Google", "Facebook", "Baidu", "Apple")
_CHANNELS = 10_000
_TEXT_LENGTH = 1 << 16
_DRAWS = 12
"""Random numbers per event: as many as the kind that needs the most, so that no event depends on its neighbours."""

Numbers = npt.NDArray[np.int64]
Draws = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Model:
    """The site: its seed, its pace, and its proportions. Sizes are bytes, prices cents."""

    seed: int = 1
    events_per_s: float = 10_000.0
    begin_us: int = 1_436_918_400_000_000
    """2015-07-15 00:00 UTC."""
    hot_auction_ratio: int = 2
    hot_seller_ratio: int = 4
    hot_bidder_ratio: int = 4
    in_flight_auctions: int = 100
    active_people: int = 1000
    person_bytes: int = 200
    auction_bytes: int = 500
    bid_bytes: int = 100
    out_of_order: int = 1

    def times_us(self, numbers: Numbers) -> Numbers:
        """When these events happen, to the millisecond."""
        return self.begin_us + (numbers * 1000 / self.events_per_s).astype(np.int64) * 1000


def events(model: Model, first: int, count: int) -> list[dict[str, Any]]:
    """The events ``first`` to ``first + count - 1`` in order of arrival, as records of :data:`SCHEMA`.

    >>> made = events(Model(seed=7), 0, 100)
    >>> [sum(event["event_type"] == kind for event in made) for kind in (PERSON, AUCTION, BID)]
    [2, 6, 92]
    >>> events(Model(seed=7), 40, 60) == made[40:]
    True
    """
    found: list[dict[str, Any]] = table(model, first, count).to_pylist()
    return found


def table(model: Model, first: int, count: int) -> pa.Table:
    """The same as an Arrow table: about 150,000 events a second."""
    if count <= 0:
        return pa.Table.from_batches([], _block(model, 0).schema)
    blocks = range(first // BLOCK, (first + count - 1) // BLOCK + 1)
    whole = pa.Table.from_batches([_block(model, block) for block in blocks])
    return whole.slice(first - blocks[0] * BLOCK, count)


def people(made: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The persons among the events."""
    return [event["person"] for event in made if event["event_type"] == PERSON]


def auctions(made: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The auctions among the events."""
    return [event["auction"] for event in made if event["event_type"] == AUCTION]


def bids(made: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The bids among the events."""
    return [event["bid"] for event in made if event["event_type"] == BID]


@lru_cache(maxsize=4)
def _block(model: Model, block: int) -> pa.RecordBatch:
    numbers = _shuffled(np.arange(block * BLOCK, (block + 1) * BLOCK, dtype=np.int64), model.out_of_order)
    draws = np.random.Generator(np.random.Philox(key=model.seed, counter=[0, 0, 0, block])).random((BLOCK, _DRAWS))
    offsets = numbers % PERIOD
    kinds = np.where(offsets < PERSONS_IN_50, PERSON, np.where(offsets < PERSONS_IN_50 + AUCTIONS_IN_50, AUCTION, BID))
    times = model.times_us(numbers)
    makers = {PERSON: _persons, AUCTION: _auctions, BID: _bids}
    structs = []
    for kind, make in makers.items():
        of_kind = kinds == kind
        fields = {**make(model, numbers[of_kind], draws[of_kind]), "at": _time(times[of_kind])}
        fields = {name: fields[name] for name in _ORDER[kind]}
        struct = pa.StructArray.from_arrays([*fields.values()], [*fields])
        # Where in the struct's rows an event finds its own; null for the other kinds.
        place = pa.array(np.cumsum(of_kind) - 1, mask=~of_kind)
        structs.append(struct.take(place))
    columns = [pa.array(kinds.astype(np.int32)), _time(times), *structs]
    return pa.RecordBatch.from_arrays(columns, ["event_type", "at", "person", "auction", "bid"])


_ORDER = {
    kind: [field.split()[0] for field in text.split(", ")] for kind, text in enumerate((_PERSON, _AUCTION, BID_FIELDS))
}


def _shuffled(numbers: Numbers, group: int) -> Numbers:
    """Each group of so many numbers in another order: steps of a length that has no factor in common with it."""
    if group <= 1:
        return numbers
    step = next(step for step in range(max(2, group * 5 // 8), 2 * group + 2) if gcd(step, group) == 1)
    return numbers - numbers % group + numbers % group * step % group


def _last_person(numbers: Numbers) -> Numbers:
    """The newest person (from 0) when these events happen, or the person that an event is."""
    return numbers // PERIOD * PERSONS_IN_50 + np.minimum(numbers % PERIOD, PERSONS_IN_50 - 1)


def _last_auction(numbers: Numbers) -> Numbers:
    """The newest auction (from 0), or the auction that an event is; -1 before the first."""
    opened = np.clip(numbers % PERIOD - PERSONS_IN_50 + 1, 0, AUCTIONS_IN_50)
    return numbers // PERIOD * AUCTIONS_IN_50 + opened - 1


def _anyone(model: Model, numbers: Numbers, draws: Draws) -> Numbers:
    there = _last_person(numbers) + 1
    active = np.minimum(there, model.active_people)
    return there - active + _below(draws, active + LEAD)


def _persons(model: Model, numbers: Numbers, draws: Draws) -> dict[str, pa.Array]:
    names = [
        f"{_FIRST_NAMES[first]} {_LAST_NAMES[last]}"
        for first, last in zip(
            _below(draws[:, 0], len(_FIRST_NAMES)), _below(draws[:, 1], len(_LAST_NAMES)), strict=True
        )
    ]
    emails = [f"{_word(model.seed, a, 7)}@{_word(model.seed, b, 5)}.com" for a, b in draws[:, 2:4]]
    cards = [" ".join(f"{int(part * 10_000):04d}" for part in row) for row in draws[:, 4:8]]
    cities = [_CITIES[at] for at in _below(draws[:, 8], len(_CITIES))]
    states = [_STATES[at] for at in _below(draws[:, 9], len(_STATES))]
    texts = zip(names, emails, cards, cities, states, strict=True)
    used = np.array([8 + sum(map(len, text)) for text in texts], dtype=np.int64)
    return {
        "id": pa.array(_last_person(numbers) + FIRST_ID),
        "name": pa.array(names),
        "email_address": pa.array(emails),
        "credit_card": pa.array(cards),
        "city": pa.array(cities),
        "state": pa.array(states),
        "extra": _extra(model.seed, draws[:, 10:12], used, model.person_bytes),
    }


def _auctions(model: Model, numbers: Numbers, draws: Draws) -> dict[str, pa.Array]:
    hot = _last_person(numbers) // HOT_BATCH * HOT_BATCH
    sellers = np.where(_below(draws[:, 0], model.hot_seller_ratio) > 0, hot, _anyone(model, numbers, draws[:, 1]))
    first = _prices(draws[:, 2])
    names = [_word(model.seed, draw, 20) for draw in draws[:, 3]]
    texts = [_word(model.seed, draw, 100) for draw in draws[:, 4]]
    horizon_ms = model.in_flight_auctions * PERIOD / AUCTIONS_IN_50 * 1000 / model.events_per_s
    open_us = (1 + _below(draws[:, 5], max(1, round(2 * horizon_ms)))) * 1000
    used = np.array([48 + len(a) + len(b) for a, b in zip(names, texts, strict=True)], dtype=np.int64)
    return {
        "id": pa.array(_last_auction(numbers) + FIRST_ID),
        "item_name": pa.array(names),
        "description": pa.array(texts),
        "initial_bid": pa.array(first),
        "reserve": pa.array(first + _prices(draws[:, 6])),
        "expires": _time(model.times_us(numbers) + open_us),
        "seller": pa.array(sellers + FIRST_ID),
        "category": pa.array(_below(draws[:, 7], CATEGORIES) + FIRST_CATEGORY),
        "extra": _extra(model.seed, draws[:, 8:10], used, model.auction_bytes),
    }


def _bids(model: Model, numbers: Numbers, draws: Draws) -> dict[str, pa.Array]:
    newest = _last_auction(numbers)
    oldest = np.maximum(newest - model.in_flight_auctions, 0)
    any_auction = oldest + _below(draws[:, 1], newest - oldest + 1 + LEAD)
    auction = np.where(_below(draws[:, 0], model.hot_auction_ratio) > 0, newest // HOT_BATCH * HOT_BATCH, any_auction)
    hot = _last_person(numbers) // HOT_BATCH * HOT_BATCH + 1
    bidders = np.where(_below(draws[:, 2], model.hot_bidder_ratio) > 0, hot, _anyone(model, numbers, draws[:, 3]))
    places = [_channel(model.seed, first, second) for first, second in draws[:, 5:7]]
    return {
        "auction": pa.array(auction + FIRST_ID),
        "bidder": pa.array(bidders + FIRST_ID),
        "price": pa.array(_prices(draws[:, 4])),
        "channel": pa.array([channel for channel, _ in places]),
        "url": pa.array([url for _, url in places]),
        "extra": _extra(model.seed, draws[:, 8:10], np.full(len(numbers), 32), model.bid_bytes),
    }


def _below(draws: Draws, bounds: int | Numbers) -> Numbers:
    """Whole numbers from 0 up to, not including, the bounds."""
    return (draws * bounds).astype(np.int64)


def _prices(draws: Draws) -> Numbers:
    return np.rint(np.power(10.0, draws * 6.0) * 100.0).astype(np.int64)


def _channel(seed: int, first: float, second: float) -> tuple[str, str]:
    if first < 0.5:
        channel = _HOT_CHANNELS[int(second * len(_HOT_CHANNELS))]
        return channel, _url(seed, channel)
    number = int(second * _CHANNELS)
    # One in ten has no id in its address.
    ending = "" if number % 10 == 0 else f"&channel_id={number}"
    return f"channel-{number}", _url(seed, str(number)) + ending


@lru_cache(maxsize=2 * _CHANNELS)
def _url(seed: int, channel: str) -> str:
    draws = np.random.Generator(np.random.Philox(key=seed, counter=[0, 1, 0, sum(channel.encode())])).random(3)
    words = "/".join(_word(seed, draw, 5).replace(" ", "_") for draw in draws)
    return f"https://auctions.example/{words}/item.htm?query={channel}"


@lru_cache(maxsize=4)
def _text(seed: int) -> str:
    """A long random text: words and fillings are pieces of it."""
    letters = np.random.Generator(np.random.Philox(key=seed, counter=[0, 2, 0, 0])).integers(0, 27, _TEXT_LENGTH)
    return "".join("abcdefghijklmnopqrstuvwxyz "[letter] for letter in letters)


def _word(seed: int, draw: float, longest: int) -> str:
    """Three to ``longest`` characters."""
    start = int(draw * (_TEXT_LENGTH - longest))
    return _text(seed)[start : start + 3 + int(draw * 1e6) % (longest - 2)].strip() or "x"


def _extra(seed: int, draws: Draws, used: Numbers, average: int) -> pa.Array:
    """Text that fills records up to 80 to 120 % of what is missing to their average size."""
    text = _text(seed)
    missing = np.maximum(average - used, 0)
    lengths = (missing * (0.8 + 0.4 * draws[:, 0])).astype(np.int64)
    starts = _below(draws[:, 1], _TEXT_LENGTH - 2 * average - 1)
    return pa.array([text[start : start + length] for start, length in zip(starts, lengths, strict=True)], pa.string())


def _time(times_us: Numbers) -> pa.Array:
    return pa.array(times_us, pa.timestamp("us", "UTC"))
