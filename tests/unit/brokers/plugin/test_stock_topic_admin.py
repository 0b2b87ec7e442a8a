"""A sidecar sends operations on topics to its broker's own Admin REST."""

from __future__ import annotations

from typing import Any

import pytest

from brokers.adapters.broker_service.stock_topic_admin import StockTopicAdmin
from nextgen.client.wire.errors import ERROR_METADATA_KEY, from_detail
from nextgen.kernel.errors import MetadataError, ServedElsewhere, Unavailable
from protos.nextgen.v1 import topic_admin_pb2 as wire
from protos.nextgen.v1.errors_pb2 import ErrorDetail

METHODS = [each.name for each in wire.DESCRIPTOR.services_by_name["TopicAdmin"].methods]


class Aborted(Exception):
    """The call was ended with an error."""


class Context:
    """A call's context, as far as an error needs it."""

    error: MetadataError | None = None

    async def abort(self, _code: object, _details: str, trailing: Any) -> None:
        ((key, detail),) = trailing
        assert key == ERROR_METADATA_KEY
        self.error = from_detail(ErrorDetail.FromString(detail))
        raise Aborted


async def called(method: str, web_urls: str) -> MetadataError | None:
    context = Context()
    with pytest.raises(Aborted):
        await getattr(StockTopicAdmin(lambda: web_urls), method)(b"", context)
    return context.error


@pytest.mark.parametrize("method", METHODS)
async def test_every_call_is_answered_with_the_brokers_address(method: str) -> None:
    error = await called(method, "http://b1:8080,https://b1:8443")

    assert isinstance(error, ServedElsewhere)
    assert error.web_urls == "http://b1:8080,https://b1:8443"


async def test_without_its_broker_it_is_to_be_asked_again() -> None:
    assert isinstance(await called("GetStats", ""), Unavailable)
