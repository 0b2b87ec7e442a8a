"""The topic that a command names, and its layout."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from nextgen.cli.console.command_run import run_command
from nextgen.kernel.errors import Refused
from nextgen.kernel.events.decider import RejectionCode
from nextgen.kernel.routing.names import Domain, parse_topic, scalable_name

if TYPE_CHECKING:
    from nextgen.cli.calls.discovery_client import DiscoveryClient
    from protos.nextgen.v1.layouts_pb2 import ScalableTopic

_FORMS = "topic://tenant/namespace/name or tenant/namespace/name"

Name = Annotated[str, typer.Argument(help=_FORMS)]
Names = Annotated[list[str], typer.Argument(help=_FORMS)]


async def layout_of(client: DiscoveryClient, name: str) -> ScalableTopic:
    """Return the layout of a topic.

    Raises:
        Refused: NOT_FOUND.
    """
    from protos.nextgen.v1.discovery_service_pb2 import GetObjectRequest

    found = await client.call("GetScalableTopic", GetObjectRequest(name=name))
    if not found.item.HasField("scalable_topic"):
        raise Refused(RejectionCode.NOT_FOUND, f"there is no scalable topic {name}")
    layout: ScalableTopic = found.item.scalable_topic
    return layout


def full_name(text: str) -> str:
    """Return the canonical name of the scalable topic that an argument names.

    A text without a domain means one in the domain ``topic``.
    """
    given = text if "://" in text else f"{Domain.TOPIC}://{text}"

    async def parse() -> str:
        name = parse_topic(given)
        if name.domain is not Domain.TOPIC:
            raise Refused(RejectionCode.INVALID_NAME, f"{name.text} is no scalable topic's name")
        return name.text

    return run_command(parse())


def migrated_name(text: str) -> str:
    """Return the canonical name of the scalable topic that a classic topic is to become."""

    async def parse() -> str:
        name = parse_topic(text)
        if name.partition is not None or name.domain not in (Domain.PERSISTENT, Domain.TOPIC):
            raise Refused(RejectionCode.INVALID_NAME, f"{name.text} is no persistent topic's name")
        return scalable_name(name).text

    return run_command(parse())
