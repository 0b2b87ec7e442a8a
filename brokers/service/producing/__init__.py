"""The producers of a topic: who is connected, and the way of a message from SEND to receipt.
Receipts come in the order of SENDs. ``service.topics`` and Pulsar connections call it.
"""
