"""The ports of a process: gRPC, HTTP probes, and the files that its ports may open.

A server keeps to its limits of connections; a port that is taken is one clear sentence.
The components' bootstraps, the command line and ``nextgen.pulsar`` call it.
"""
