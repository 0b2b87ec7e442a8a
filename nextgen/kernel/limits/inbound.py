"""Upper bounds of the cost of one peer's input: frames, connections, lines of the log (ADR 0058).

Each has its unit and its reason.
"""

from __future__ import annotations

# Frames of the Pulsar protocol -----------------------------------------------------------------

FRAME_BEFORE_CONNECT_BYTES_MAX = 64 * 1024
"""The first frame of a connection, which is CONNECT: its largest part is authentication data, a
token of some kilobytes."""

COMMAND_FIELDS_MAX = 32 * 1024
"""Fields of one command, or of one message's metadata, those of messages inside included. Ten
thousand key-value pairs; counting them takes some 10 ms, parsing and checking them 30 ms."""

COMMAND_COUNTED_BYTES_MIN = 2 * COMMAND_FIELDS_MAX
"""Longer commands have their fields counted before they are parsed. A field takes at least two
bytes, so a shorter one has no room for more than ``COMMAND_FIELDS_MAX``."""

# Connections -----------------------------------------------------------------------------------

UNFINISHED_FRAMES_BYTES_MAX = 256 * 1024 * 1024
"""Bytes of incomplete frames of all Pulsar clients of one process: fifty of the largest frames at a
time. Beyond it the connections are dropped whose frames have taken the most memory for the longest
time. One connection has one incomplete frame, so at most ``PULSAR_FRAME_BYTES_MAX``."""

FRAME_MS_MAX = 30_000
"""Time for a begun frame to become complete, in addition to its size at ``FRAME_BYTES_PER_S_MIN``:
as long as a client may be silent."""

FRAME_BYTES_PER_S_MIN = 64 * 1024
"""The slowest client that is served: the largest frame may take 110 s in all."""

UNFINISHED_FRAMES_CHECK_MS = 1_000
"""Interval of checks for overdue frames, while there are incomplete ones."""

CONNECTIONS_BEFORE_CONNECT_MAX = 4_096
"""Pulsar connections of one process without CONNECT, which clients send at once; beyond it the
oldest is dropped for each new one. Each has ``PULSAR_KEEP_ALIVE_MS`` at most."""

# TLS -------------------------------------------------------------------------------------------

TLS_FILE_BYTES_MAX = 256 * 1024
"""Bytes of a file with certificates or a key: a hundred authorities. Browsers trust some 150."""

PROVISIONED_CERTIFICATES_MAX = 1_000
"""Certificates that one command makes: every node of a large cluster. Each takes a millisecond, and
its name a part of a command line, which has a bound too."""

TLS_HANDSHAKES_MAX = 1_024
"""TLS handshakes at one time at one listener; beyond it the oldest is dropped for each new one. A
client needs one round trip and a millisecond of work; each half-open one holds some 50 KiB."""

TLS_HANDSHAKE_MS_MAX = 5_000
"""Time for a TLS handshake: a client far away with lost packets needs two seconds."""

CLIENT_CERTIFICATES_KEPT_MAX = 1_024
"""Parsed certificates of gRPC's callers, kept to parse each once: two MB of them. One beyond it is
parsed again with each call, which costs some 50 microseconds."""

EXCLUDED_NODES_MAX = 4_096
"""Excluded nodes, which are remembered for ever: as many as a cluster may have, lost four times.
Their ids fit into one update to a node."""

TLS_FILES_CHECK_MS = 1_000
"""A changed certificate is used by the first handshake this long after the check before: three
looks at the file system per second, however many connect."""

# HTTP ------------------------------------------------------------------------------------------

HTTP_CONNECTIONS_MAX = 1_024
"""Connections over HTTP to one process: scrapes, probes, and lookups of clients with an ``http://``
URL, which keep a few each. Beyond it the one that has waited longest without a request is closed;
if all have requests, the new one."""

HTTP_CONNECTIONS_PER_ADDRESS_MAX = 256
"""HTTP connections of one address, likewise."""

HTTP_FILES_SHARE = 16
"""HTTP takes at most this part of the files that a process may have open: a sixteenth."""

OPEN_FILES_RESERVED = 640
"""Files that connections leave to other uses: journals, views, connections to other processes, and
twice ``LEDGER_OPEN_FILES_MAX``."""

OPEN_FILES_RESERVED_SHARE = 4
"""The reserve is at most this part of the files that a process may have open, a quarter: with few
files most go to Pulsar clients."""

LEDGER_FILES_SHARE = 16
"""Ledgers keep at most this part of the files open for appending, a sixteenth, and as many for
reading. So half of a reserve of a quarter is left for other uses."""

HTTP_IDLE_MS_MAX = 30_000
"""Longest time without a request: twice the usual interval of Prometheus, which keeps its
connection."""

HTTP_REQUEST_MS_MAX = 10_000
"""Time-out from the first byte of a request to its last: a request has a kilobyte or two."""

HTTP_ANSWER_MS_MAX = 60_000
"""Time-out for making an answer, and again for the client to read it: as long as stock clients
wait."""

HTTP_CHECK_MS = 1_000
"""Interval of checks for overdue connections, while there are any."""

# gRPC ------------------------------------------------------------------------------------------

GRPC_CONNECTIONS_MAX = 16_384
"""Connections over gRPC to one process: twice the nodes and brokers that may be connected to the
cluster manager's leader. Beyond it a new one is closed unread."""

GRPC_FILES_SHARE = 8
"""gRPC takes at most this part of the files that a process may have open: an eighth. With 65,536
that is all nodes and brokers there may be."""

GRPC_ACCEPT_LINES_MAX = 16
"""Lines in which the calls to a discovery node wait to be taken. One is a file and some KB. Two
connections share one of them by chance; then the calls of one wait behind those of the other."""

GRPC_LINE_CONNECTIONS_MIN = 32
"""Connections of a line: a process with few files has fewer lines. Connections come to lines by
chance, and one that finds its line full is closed unread, until it tries again."""

GRPC_HANDSHAKE_MS_MAX = 10_000
"""Time-out from accepting a connection to its first HTTP/2 settings, which clients send at once."""

GRPC_IDLE_MS_MAX = 300_000
"""A connection without a call is closed after this long: clients open another with their next call.
Nodes and brokers have streams that do not end."""

GRPC_REQUEST_FIELDS_MAX = 100_000
"""Fields of one gRPC request, those of messages inside included: a thousand topics with thirty
properties each. Counting them takes some 40 ms, parsing them 10 ms."""

GRPC_COUNTED_BYTES_MIN = 2 * GRPC_REQUEST_FIELDS_MAX
"""Longer requests have their fields counted before they are parsed. A field takes at least two
bytes, so a shorter one has no room for more than ``GRPC_REQUEST_FIELDS_MAX``."""

# Proofs of the cluster secret (ADR 0057) -------------------------------------------------------

CLUSTER_SECRET_BYTES_MIN = 16
"""Bytes of a cluster secret: 128 bits if they are random, out of reach of a search."""

CLUSTER_SECRET_BYTES_MAX = 4_096
"""Bytes of a cluster secret's file. A larger one is the wrong file: a log, a disk image."""

CHALLENGE_PERIOD_MS = 60_000
"""A server makes a new challenge after this long, by its monotonic clock, and accepts proofs for
the previous one too: longer than any handshake, and short enough to remember every proof of it."""

CHALLENGE_PROOFS_MAX = 16_384
"""Proofs that a server accepts for one challenge; then it makes the next one. It remembers each
proof (some 100 bytes) to accept none twice. Streams prove once, so a busy server gets a few in a
second."""

CHALLENGE_KEPT_MS = 30_000
"""A client requests a new challenge after this long: half of its period of validity."""

# Diagnostics -----------------------------------------------------------------------------------

LOG_FIELD_CHARACTERS_MAX = 200
"""Characters of one field of a log line, and of the reason for which a connection is closed: they
may come from a peer. Longer text is cut at its end."""

LOG_EVENT_CHARACTERS_MAX = 500
"""Characters of the sentence of a line. Ours are short; those of libraries may quote their
input."""

LOG_EXCEPTION_CHARACTERS_MAX = 8_000
"""Characters of a traceback: some 60 frames. A longer one is cut in the middle."""

LOG_ITEMS_MAX = 20
"""Items of a list in a line."""

LOG_LINES_PER_KIND_MAX = 20
"""Lines of one kind in one ``LOG_WINDOW_MS``; then one line says how many were left out. Under an
attack that lasts a day some 50 MB of each kind."""

LOG_WINDOW_MS = 10_000
"""How long lines of one kind are counted: short enough that a burst does not hide the next one."""

LOG_KINDS_MAX = 256
"""Kinds of lines counted separately in one window. A process of ours writes some dozens; further
kinds are counted as one."""

LOG_FILE_BYTES_MAX = 8 * 1024 * 1024
"""Bytes of one file that ``nextgen up`` lets a process' diagnostics grow to."""

LOG_FILES_KEPT_MAX = 3
"""Earlier files of one process that are kept: with the current one 32 MiB in all."""

LOG_FILES_CHECK_MS = 10_000
"""Interval of checks of these files' sizes."""

# Authentication of clients ---------------------------------------------------------------------

AUTH_DATA_BYTES_MAX = 16 * 1024
"""A token, or another proof of identity, before anything of it is parsed. Tokens of identity
providers with many claims have some 4 KiB."""

ROLE_BYTES_MAX = 256
"""The name of a role. It stands in policies, statistics and logs."""

VERIFIED_CREDENTIALS_MAX = 10_000
"""Credentials whose check is remembered, by digest: 32 bytes and a role each. As many clients may
reconnect at once, all with the same few tokens or each with its own."""

KEY_FILE_BYTES_MAX = 1024 * 1024
"""A file with a key, with a set of public keys, or with users and hashes of their passwords."""

JWKS_KEYS_MAX = 100
"""Keys of one set: an identity provider publishes two to ten."""

PASSWORD_USERS_MAX = 10_000
"""Users of one password file."""

PASSWORD_CHECKS_RUNNING_MAX = 2
"""Passwords that are hashed at a time, each in a thread of its own: 16 MiB and some 30 ms of a
core."""

PASSWORD_CHECKS_WAITING_MAX = 64
"""Passwords that wait to be hashed, two seconds of work. Beyond it clients are refused at once."""

PASSWORD_HASH_MEMORY_BYTES_MAX = 64 * 1024 * 1024
"""Memory that one hash in a password file may ask for. The default of ours takes 16 MiB."""

PASSWORD_HASH_ROUNDS_MAX = 10_000_000
"""Rounds of PBKDF2 that one hash in a password file may ask for: some three seconds."""

KEY_FILE_CHECK_MS = 1_000
"""Interval at which a key's file is looked at for a change, at the next use."""

PROXY_ROLES_MAX = 100
"""Roles of proxies that a server is configured with."""

# What clients may do ----------------------------------------------------------------------------

SUPERUSERS_MAX = 1_000
"""Superusers of one process: operators and their programs, not clients."""

PERMISSION_OBJECTS_MAX = 50_000
"""Tenants, namespaces and topics whose permissions one process follows, some 2 KB each. Beyond it
those that no connection keeps go, the least recently used first; a broker's 50,000 units have no
more namespaces."""

PERMISSION_READ_MS = 3_000
"""A check waits this long for permissions that are not known: longer than a shard needs for a new
leader, and less than a stock client waits for any answer."""

PERMISSION_IDLE_MS = 300_000
"""Permissions that were not asked for so long are not followed any longer, unless a connection
uses what they allow. Effective writes wait for each process that follows an object."""

PERMISSION_SWEEP_MS = 30_000
"""Interval at which idle permissions are looked for."""

PERMISSION_RETRY_MS = 500
"""Pause before permissions are followed again whose watch a shard ended."""

LOOKABLE_NAMES_MAX = 1_000
"""Namespaces and topics that one connection may look up without a question, some 200 bytes each.
Beyond it the set begins anew."""

RECHECKED_PER_TURN_MAX = 256
"""Producers, consumers and watches that are judged anew in one turn of the event loop when
permissions change: some milliseconds. The change is acknowledged behind the last."""

RATE_PERIOD_SECONDS_MAX = 86_400
"""Period of a rate in a policy. A topic may be sent what is left of a whole period at once: more
than a day's worth is no rate."""

RATE_SLICE_MS = 10
"""Time for which there is room when a client that was held back by a rate continues: a hundred
wake-ups a second at most, and bursts of a hundredth of the rate."""

SUBSCRIBERS_COUNTED_MAX = 10_000
"""Consumers of one topic whose subscribes are counted in a period. Beyond it the one that came
first is forgotten: it may subscribe as often again."""
