"""The cluster secret, and the proofs that processes make and check with it (ADR 0057).

The secret never travels; only proofs of it do, and a server takes no proof twice.
Components, the client library's channels, the command line and the pipelines call it.
"""
