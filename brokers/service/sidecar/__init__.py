"""The sidecar of a stock Apache Pulsar broker: passes the session's steps to its plug-in.
The session itself is that of every broker, in ``service.session``.
"""
