"""``TopicAdmin`` of a sidecar: a stock broker carries operations on its topics out itself."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import grpc.aio

from nextgen.client.wire.errors import abort
from nextgen.kernel.errors import ServedElsewhere, Unavailable
from protos.nextgen.v1 import topic_admin_pb2 as wire
from protos.nextgen.v1.topic_admin_pb2_grpc import TopicAdminServicer

_Context = grpc.aio.ServicerContext[Any, Any]


class StockTopicAdmin(TopicAdminServicer):
    """Answers every call with where the broker's own Admin REST is.

    ``web_urls`` returns that, "" while the broker does not run.
    """

    def __init__(self, web_urls: Callable[[], str]) -> None:
        self._web_urls = web_urls

    async def refuse(self, _request: Any, context: _Context) -> Any:
        urls = self._web_urls()
        if not urls:
            await abort(context, Unavailable("the stock broker beside this sidecar does not run"))
        await abort(context, ServedElsewhere(urls))


for _method in wire.DESCRIPTOR.services_by_name["TopicAdmin"].methods:
    setattr(StockTopicAdmin, _method.name, StockTopicAdmin.refuse)
