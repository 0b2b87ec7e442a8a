"""What a simulated process runs on: time, disk, network, gRPC and Raft groups, driven by a seed.

Simulations and unit tests in virtual time use it; no process or socket is behind it."""
