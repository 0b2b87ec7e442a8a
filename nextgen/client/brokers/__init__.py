"""Calls to one broker: its metadata, the schemas of its topics, its acknowledgements.

A broker's refusal becomes an error that the caller can handle.
The topic directory, the command line, tests and benchmarks call it.
"""
