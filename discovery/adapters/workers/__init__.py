"""The other processes of a node, all on one Pulsar port, and the line between them and the first.
A worker that ends is started again. ``bootstrap`` alone imports it.
"""
