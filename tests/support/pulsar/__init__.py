"""Frames of the Pulsar protocol for tests: valid, extreme and broken, and a transport in memory."""
