"""Requests to the leaders of shards: the router finds them, shares streams and retries.

An error says whether the request may have been carried out; tenants take turns when it is full.
Components, the bulk loader and the command line call it.
"""
