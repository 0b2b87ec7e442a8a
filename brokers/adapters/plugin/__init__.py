"""The plug-in of a stock broker, on a Unix socket: one JSON object a line, in both directions.
The messages are listed in ``integrations/pulsar-load-manager/README.md``.
"""
