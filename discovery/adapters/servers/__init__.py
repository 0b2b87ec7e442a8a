"""What discovery serves: gRPC, Pulsar's binary protocol, and lookups over HTTP.
Requests come in here and call the service. ``bootstrap`` alone imports it.
"""
