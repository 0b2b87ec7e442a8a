"""Upper bounds of the Raft port: of a peer's messages, before and after it is identified (ADR
0056)."""

from __future__ import annotations

from nextgen.kernel.events.generations import GENERATION_BITS, GENERATIONS_MAX

# Before a peer is known ------------------------------------------------------------------------

MESH_HELLO_FRAME_BYTES_MAX = 4 * 1024
"""One frame of a connection whose peer is not known yet: a hello with the longest ids has 1 KiB."""

MESH_HANDSHAKES_MAX = 128
"""Accepted connections whose peer is not known yet; one more closes the oldest of them. A peer is
known after two round trips, and each connection holds at most what arrived in one read."""

MESH_INCARNATION_BYTES_MAX = 64
"""UTF-8 bytes of a process's incarnation, which differs after each start; ours has 16."""

CLUSTER_ID_BYTES_MAX = 255
"""UTF-8 bytes of a cluster id in a hello, as for node ids. Settings take 128 characters."""

MESH_PEERS_REMEMBERED_MAX = 1_024
"""Peers whose event level and incarnation are kept: no more can be connected at a time. The one
with the oldest news is dropped first."""

MESH_REASON_CHARACTERS_MAX = 200
"""Characters of the reason in the log when a connection is closed: a peer chooses some of them."""

# What a peer says ------------------------------------------------------------------------------

TERM_MAX = (GENERATIONS_MAX << GENERATION_BITS) - 1
"""The last term of the last generation. A ledger id has 43 bits for an epoch, and the first epochs
of a generation are its first term."""

TERM_JUMP_MAX = 1 << 20
"""Terms by which a single peer may be ahead and is still believed: twelve days of one election a
second. Beyond it a majority of the voters has to confirm the term."""

GENERATION_JUMP_MAX = 8
"""Promotions by which a single peer may be ahead and is still believed."""

RAFT_NUMBER_MAX = 1 << 62
"""Any other number of a message: log index, position, round of reads, offset in a snapshot. Half
of what a view stores, so that no sum of two of them is beyond that."""

ENTRY_EVENTS_MAX = (1 << 32) - 1
"""Events of one entry of a peer: the journal has four bytes for their number."""

MESH_FRAME_UNCOUNTED_BYTES = 64 * 1024
"""A frame up to this size is unpacked uncounted: that takes a few milliseconds and megabytes at
most."""

HEARTBEATS_PER_MESSAGE_MAX = 1_024
"""Groups whose heartbeats to one peer share a message, or answers: some 60 kB. Those of more groups
take several."""

MESH_FRAME_PARTS_MAX = 4_096 + 8
"""Arrays and maps in a larger frame: the entries of one message, the message and its frame."""

MESH_FRAME_PART_ITEMS_MAX = 32
"""Items in each of them but one, the list of entries."""
