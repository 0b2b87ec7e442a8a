"""Pulsar's binary protocol at a broker: connections, producers and consumers of each, answers.
Clients' commands come in here and call the topics. Bootstrap and metrics import ``front``.
"""
