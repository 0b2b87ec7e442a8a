"""Conversions between protobuf and the domain: commands, events, lookups and states of inventories.

Every room may call it; it decides nothing.
"""
