"""Layouts of scalable topics, shared by all sessions of a process that watch them.

Discovery and brokers make one ``SharedLayouts`` each; the protocol is in ``nextgen.pulsar``.
"""
