"""The line between a worker and its parent: what the parent takes in."""

from discovery.adapters.workers.line import ParentEnd
from discovery.service.report import Report
from nextgen.kernel.limits.pulsar import WORKER_REPORT_BYTES_MAX


class Transport:
    """Records whether it was closed."""

    def __init__(self) -> None:
        self.is_closed = False

    def close(self) -> None:
        self.is_closed = True


def parent_end() -> tuple[ParentEnd, Transport]:
    end, transport = ParentEnd(), Transport()
    end.connection_made(transport)  # type: ignore[arg-type]  # It has what is used of one.
    return end, transport


def test_worker_report_bytes_max_without_an_end_are_kept_and_one_more_ends_the_line() -> None:
    # Given: a report whose end has not come, as long as one may be. JSON may begin with blanks.
    report = Report().to_json().encode()
    text = b" " * (WORKER_REPORT_BYTES_MAX - len(report)) + report
    whole, its_transport = parent_end()
    longer, the_other_transport = parent_end()

    # When
    whole.data_received(text)
    whole.data_received(b"\n")
    longer.data_received(b" " + text)

    # Then
    assert (whole.latest, its_transport.is_closed) == (Report(), False)
    assert (longer.latest, the_other_transport.is_closed) == (None, True)


def test_a_report_that_comes_in_pieces_is_taken_whole() -> None:
    end, _ = parent_end()

    for byte in Report().to_json().encode() + b"\n":
        assert end.latest is None
        end.data_received(bytes([byte]))

    assert end.latest == Report()
