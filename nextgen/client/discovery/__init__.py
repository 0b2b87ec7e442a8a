"""Calls to any discovery node that answers: lookups, watches, commands.

A call that fails over stays one logical request, and a lookup sees the caller's own writes.
``Client``, ``nextgen.client.log``, the tools and the pipelines call it.
"""
