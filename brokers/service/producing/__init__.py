"""The producers of a topic: their connections, and the path of a message from SEND to receipt.
Receipts are sent in the order of SENDs. ``service.topics`` and Pulsar connections call it.
"""
