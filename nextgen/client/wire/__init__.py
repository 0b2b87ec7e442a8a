"""Conversions between protobuf messages and our values: errors, load, policies, windows.

A value that goes over the wire and comes back is the same value.
Components, the command line, the pipelines and the rest of the client library call it.
"""
