"""A node that answers is not lost."""

from __future__ import annotations

import socket

import pytest

from nextgen.kernel.errors import Refused
from nextgen.runtime.lifecycle.lost_nodes import refuse_if_any_answers


def test_a_node_that_answers_at_any_address_is_refused() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server, socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        silent, answering = unused.getsockname(), server.getsockname()

        refuse_if_any_answers({"node-2": [silent]})
        with pytest.raises(Refused, match="node-3 is declared lost and answers at"):
            refuse_if_any_answers({"node-2": [silent], "node-3": [silent, answering]})
