"""A client of scalable topics (``topic://``), of this project's servers and of stock Pulsar 5.

Programs import it alone: ``from nextgen.client import st``. docs/scalable-client.md has examples.
"""
