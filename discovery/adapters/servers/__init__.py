"""The servers of discovery: gRPC and Pulsar's binary protocol.
They pass requests to the service. ``bootstrap`` alone imports it.
"""
