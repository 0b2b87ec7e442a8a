"""Codes of refusals that mean something else for a topic than for other resources."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from discovery.adapters.rest.answer import RestFailure
from nextgen.kernel.errors import Refused
from nextgen.kernel.events.decider import RejectionCode


@contextmanager
def refused_as(codes: Mapping[RejectionCode, int]) -> Iterator[None]:
    """Have a refusal with one of ``codes`` answered with its status.

    Raises:
        RestFailure: With that status.
        Refused: Another refusal; the frame knows its status.
    """
    try:
        yield
    except Refused as error:
        for code, status in codes.items():
            if error.code == code:
                raise RestFailure(status, str(error)) from error
        raise
