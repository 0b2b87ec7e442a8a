"""Logs, traces and metrics of a process, and where they go.

A peer cannot fill the disk with lines; a collector that is away costs spans, never requests.
Components, the client library and the command line call it.
"""
