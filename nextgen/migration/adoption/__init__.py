"""Hands a namespace of a stock Apache Pulsar cluster over to placement by topic, and back."""
