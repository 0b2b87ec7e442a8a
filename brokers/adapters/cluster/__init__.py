"""The way to the rest of the cluster: who the other brokers are, where the manager is, its stream.
It fulfils the ports of the session. ``bootstrap`` alone imports it.
"""
