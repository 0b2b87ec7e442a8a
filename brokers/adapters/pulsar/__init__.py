"""Pulsar's binary protocol at a broker: connections, their producers and consumers, answers.
It passes clients' commands to the topics. Bootstrap and metrics import ``front``.
"""
