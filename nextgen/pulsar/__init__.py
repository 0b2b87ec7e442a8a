"""The Pulsar binary protocol: frames, commands, payloads, and the server's half of a connection."""
