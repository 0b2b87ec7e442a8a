"""Walks a listing page by page, and repeats a change whose object was changed in between."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from typing import TypeVar

from discovery.service.admin.deadline import Deadline
from nextgen.kernel.errors import Refused
from nextgen.kernel.events.decider import RejectionCode
from nextgen.kernel.limits.cluster import PAGE_ITEMS_MAX
from nextgen.kernel.limits.rest import REST_CHANGE_ATTEMPTS_MAX
from protos.nextgen.v1.discovery_service_pb2 import ListObjectsRequest, ListObjectsResponse
from protos.nextgen.v1.inventory_pb2 import Item

Result = TypeVar("Result")
ListPage = Callable[[ListObjectsRequest, int], Awaitable[ListObjectsResponse]]


async def every_item(
    list_page: ListPage, deadline: Deadline, *, parent: str = ""
) -> AsyncIterator[Item]:
    """Yield all items in the order of their names: name and number of partitions only."""
    async for page in _pages(list_page, deadline, parent):
        for item in page.items:
            yield item


async def name_batches(
    list_page: ListPage, deadline: Deadline, *, parent: str = ""
) -> AsyncGenerator[list[str]]:
    """Yield all names, ascending, in batches that are not empty."""
    async for page in _pages(list_page, deadline, parent):
        if page.items:
            yield [item.name for item in page.items]


async def _pages(
    list_page: ListPage, deadline: Deadline, parent: str
) -> AsyncIterator[ListObjectsResponse]:
    request = ListObjectsRequest(parent=parent, page_size=PAGE_ITEMS_MAX, names_only=True)
    while True:
        page = await list_page(request, deadline.remaining_ms())
        yield page
        request.page_token = page.next_page_token
        if not request.page_token:
            return


async def repeated_change(attempt: Callable[[], Awaitable[Result]]) -> Result:
    """Return the result of ``attempt``, which reads an object and sets it at the version it read.

    Raises:
        Refused: As ``attempt``; VERSION_MISMATCH if others changed the object each time.
    """
    for _ in range(REST_CHANGE_ATTEMPTS_MAX - 1):
        try:
            return await attempt()
        except Refused as error:
            if error.code != RejectionCode.VERSION_MISMATCH:
                raise
    return await attempt()
