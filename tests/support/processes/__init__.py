"""Clusters and single processes on loopback: how tests start, upgrade, cut off and stop them."""
