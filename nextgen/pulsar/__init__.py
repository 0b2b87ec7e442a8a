"""The Pulsar binary protocol: frames, commands, payloads, the server's half of a connection.

No other package knows the bytes of the protocol (ADR 0020).
Brokers, discovery, the client library and the tools may import it.
"""
