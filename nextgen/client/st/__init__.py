"""A client of scalable topics (``topic://``), of this project's servers and of stock Pulsar 5.

Programs import it alone: ``from nextgen.client import st``. docs/scalable-client.md has examples.
"""

from __future__ import annotations

from nextgen.client.st import errors, schemas
from nextgen.client.st.blocking import BlockingPulsarClient
from nextgen.client.st.client import PulsarClient
from nextgen.client.st.consuming.checkpoint_consumer import CheckpointConsumer
from nextgen.client.st.consuming.message import Message
from nextgen.client.st.consuming.namespace_consumer import (
    NamespaceQueueConsumer,
    NamespaceStreamConsumer,
)
from nextgen.client.st.consuming.queue_consumer import QueueConsumer
from nextgen.client.st.consuming.settings import DeadLetterPolicy, InitialPosition
from nextgen.client.st.consuming.stream_consumer import StreamConsumer
from nextgen.client.st.domain.checkpoints import Checkpoint
from nextgen.client.st.domain.positions import MessageId
from nextgen.client.st.domain.redelivery import RedeliveryBackoff
from nextgen.client.st.producing.producer import Producer
from nextgen.client.st.producing.settings import AccessMode, Compression
from nextgen.client.st.schemas.schema import Schema

__all__ = [
    "AccessMode",
    "BlockingPulsarClient",
    "Checkpoint",
    "CheckpointConsumer",
    "Compression",
    "DeadLetterPolicy",
    "InitialPosition",
    "Message",
    "MessageId",
    "NamespaceQueueConsumer",
    "NamespaceStreamConsumer",
    "Producer",
    "PulsarClient",
    "QueueConsumer",
    "RedeliveryBackoff",
    "Schema",
    "StreamConsumer",
    "errors",
    "schemas",
]
