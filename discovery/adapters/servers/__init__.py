"""The servers of discovery: gRPC, Pulsar's binary protocol, and lookups over HTTP.
They pass requests to the service. ``bootstrap`` alone imports it.
"""
