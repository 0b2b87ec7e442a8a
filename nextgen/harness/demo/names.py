"""Realistic names of tenants, namespaces and topics. The same seed gives the same names."""

from __future__ import annotations

import random
from collections.abc import Iterator

_COMPANIES = {
    "northwind-retail": ("orders", "payments", "inventory", "shipping", "loyalty"),
    "alpine-bank": ("transfers", "cards", "fraud", "statements", "onboarding"),
    "meridian-rail": ("positions", "tickets", "signals", "maintenance"),
    "blue-harbor-logistics": ("parcels", "customs", "fleet", "warehouses"),
    "helios-energy": ("meters", "grid", "forecast", "billing"),
    "kestrel-games": ("matches", "chat", "purchases", "telemetry"),
    "juniper-health": ("appointments", "devices", "claims"),
}
_SUBJECTS = (
    "account", "alert", "basket", "booking", "card", "claim", "contract", "customer", "delivery",
    "device", "discount", "driver", "event", "gateway", "invoice", "label", "ledger", "match",
    "meter", "offer", "order", "parcel", "partner", "payment", "price", "product", "profile",
    "quote", "receipt", "refund", "request", "return", "route", "sensor", "session", "shipment",
    "station", "stock", "ticket", "train", "transfer", "vehicle", "voucher", "wallet",
)  # fmt: skip
_FACTS = (
    "accepted", "approved", "archived", "cancelled", "changed", "closed", "confirmed", "corrected",
    "created", "declined", "delayed", "delivered", "expired", "failed", "flagged", "opened",
    "paid", "priced", "received", "refunded", "rejected", "reserved", "scanned", "scored", "sent",
    "settled", "started", "updated", "verified",
)  # fmt: skip
_PLACES = (
    "amsterdam", "berlin", "bergen", "bilbao", "cork", "denver", "dublin", "fukuoka", "geneva",
    "hamburg", "kyoto", "lagos", "leeds", "lima", "lyon", "madrid", "montreal", "nairobi",
    "osaka", "oslo", "porto", "pune", "quito", "riga", "seattle", "seoul", "tallinn", "turin",
    "utrecht", "vienna", "zagreb", "zurich",
)  # fmt: skip


def tenants() -> list[str]:
    """Return the tenants' names."""
    return list(_COMPANIES)


def namespaces() -> list[str]:
    """Return the namespaces' full names."""
    return [f"{tenant}/{local}" for tenant, locals_ in _COMPANIES.items() for local in locals_]


def topics(count: int, seed: int = 1) -> list[str]:
    """Return ``count`` different canonical topic names, spread over the namespaces unevenly."""
    chooser = random.Random(seed)
    return [name for _, name in zip(range(count), _distinct(chooser), strict=False)]


def _distinct(chooser: random.Random) -> Iterator[str]:
    seen: set[str] = set()
    homes = namespaces()
    weights = [1 + (place * 7) % 5 for place in range(len(homes))]
    while True:
        for home in chooser.choices(homes, weights, k=1_000):
            subject, fact, place = map(chooser.choice, (_SUBJECTS, _FACTS, _PLACES))
            name = f"persistent://{home}/{subject}-{fact}-{place}"
            if name not in seen:
                seen.add(name)
                yield name
