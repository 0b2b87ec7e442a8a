"""gRPC channels between our processes, and the gates in front of our servers.

A call between members proves the cluster secret; gates refuse messages before parsing them.
Components install the gates; the client library and the tools open the channels.
"""
