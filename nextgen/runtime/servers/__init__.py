"""The ports of a process: gRPC, HTTP probes, and the files that its ports may open.

A server enforces its limits of connections; a taken port is reported in one clear sentence.
The components' bootstraps, the command line and ``nextgen.pulsar`` call it.
"""
