"""Schemas with the stock Python client: stored, versioned, returned, checked."""

from __future__ import annotations

import json
import urllib.request

import pulsar
import pytest
from pulsar.schema import Float, Integer, JsonSchema, Record, String, StringSchema

from tests.support.callers.stock_client import PulsarSystem, received


class Order(Record):
    number = Integer()
    item = String()


class OrderWithPrice(Record):
    number = Integer()
    item = String()
    price = Float(default=None, required_default=True)


class OrderOfText(Record):
    number = String(required=True)


# Both are called the same by their schemas: they are versions of one record.
OrderWithPrice.__name__ = OrderOfText.__name__ = "Order"


def version(number: int) -> bytes:
    return number.to_bytes(8, "big")


def test_text_has_a_schema(client: pulsar.Client, topic: str):
    consumer = client.subscribe(topic, "all", schema=StringSchema())

    client.create_producer(topic, schema=StringSchema()).send("grün")

    (message,) = received(consumer, 1)
    assert message.value() == "grün"
    assert message.schema_version() in ("", version(0).decode())


def test_records_arrive_as_records(client: pulsar.Client, topic: str):
    consumer = client.subscribe(topic, "all", schema=JsonSchema(Order))

    client.create_producer(topic, schema=JsonSchema(Order)).send(Order(number=7, item="tea"))

    order = received(consumer, 1)[0].value()
    assert (order.number, order.item) == (7, "tea")


def test_a_schema_that_does_not_fit_is_refused(client: pulsar.Client, topic: str):
    client.create_producer(topic, schema=JsonSchema(Order)).send(Order(number=1, item="tea"))

    for schema in (JsonSchema(OrderOfText), StringSchema()):
        with pytest.raises(pulsar.IncompatibleSchema):
            client.create_producer(topic, schema=schema)
        with pytest.raises(pulsar.IncompatibleSchema):
            client.subscribe(topic, "all", schema=schema)


def test_each_version_of_a_schema_is_kept(system: PulsarSystem, client: pulsar.Client, topic: str):
    consumer = client.subscribe(topic, "all")
    records = [(Order, {}), (OrderWithPrice, {"price": 2.5}), (Order, {})]
    for record, more in records:
        producer = client.create_producer(topic, schema=JsonSchema(record))
        producer.send(record(number=1, item="tea", **more))
        producer.close()

    messages = received(consumer, 3)

    assert [json.loads(message.data()).get("price") for message in messages] == [None, 2.5, None]
    path = topic.removeprefix("persistent://")
    kept = []
    for number in (0, 1):
        url = f"{system.http_url}/admin/v2/schemas/{path}/schema/{number}"
        with urllib.request.urlopen(url, timeout=30) as answer:
            kept.append(json.load(answer))
    fields = [[field["name"] for field in json.loads(one["data"])["fields"]] for one in kept]
    assert [one["type"] for one in kept] == ["JSON", "JSON"]
    assert [sorted(names) for names in fields] == [["item", "number"], ["item", "number", "price"]]


def test_a_topic_with_a_schema_takes_bytes_of_producers_that_know_none(
    client: pulsar.Client, topic: str
):
    consumer = client.subscribe(topic, "all", schema=JsonSchema(Order))
    client.create_producer(topic, schema=JsonSchema(Order)).send(Order(number=1, item="tea"))

    client.create_producer(topic).send(b'{"number": 2, "item": "milk"}')

    assert [message.value().number for message in received(consumer, 2)] == [1, 2]
