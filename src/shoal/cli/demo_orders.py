"""Orders for the demo: a seeded stream of shops, products and prices, some of it late."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from typing import Final, NamedTuple

SHOPS: Final = ("Bergen", "Bilbao", "Brest", "Genova", "Lübeck", "Porto", "Split", "Varna")
PRODUCTS: Final = (
    ("herring", "fish", 420),
    ("mackerel", "fish", 560),
    ("sardine", "fish", 310),
    ("anchovy", "fish", 380),
    ("mussel", "shellfish", 690),
    ("oyster", "shellfish", 1450),
    ("prawn", "shellfish", 1190),
    ("kelp", "greens", 250),
    ("samphire", "greens", 330),
    ("sea salt", "pantry", 490),
)
# Some shops and products sell better than others, or there would be nothing to see.
_SHOP_WEIGHTS: Final = (9, 7, 4, 6, 3, 8, 2, 2)
_PRODUCT_WEIGHTS: Final = (9, 8, 10, 5, 4, 1, 3, 2, 2, 3)

LATE_SHARE: Final = 0.03
LATE_MS_MAX: Final = 15 * 60_000
START_MS: Final = 1_800_000_000_000


class Order(NamedTuple):
    """One order as a record: the shop is the key, so a shop's orders stay in order."""

    key: bytes
    value: bytes
    is_late: bool


def orders(count: int, *, span_ms: int, seed: int = 7) -> Iterator[Order]:
    """``count`` orders whose event times cover ``span_ms``; a few come minutes late."""
    chance = random.Random(seed)
    for number in range(count):
        shop = chance.choices(SHOPS, _SHOP_WEIGHTS)[0]
        product = chance.choices(PRODUCTS, _PRODUCT_WEIGHTS)[0][0]
        is_late = chance.random() < LATE_SHARE
        event_ms = START_MS + span_ms * number // count
        if is_late:
            event_ms = max(START_MS, event_ms - chance.randrange(LATE_MS_MAX))
        document = {
            "order_id": f"{number:06d}",
            "shop": shop,
            "product": product,
            "quantity": chance.randint(1, 5),
            "event_ms": event_ms,
        }
        yield Order(shop.encode(), json.dumps(document, ensure_ascii=False).encode(), is_late)


def closing_order(span_ms: int) -> Order:
    """An order an hour after the last: event time moves on, and every open window closes."""
    document = {
        "order_id": "closing",
        "shop": SHOPS[0],
        "product": PRODUCTS[0][0],
        "quantity": 1,
        "event_ms": START_MS + span_ms + 3_600_000,
    }
    return Order(SHOPS[0].encode(), json.dumps(document).encode(), is_late=False)
