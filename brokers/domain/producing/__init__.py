"""The rules of producers: who may produce beside whom, and which messages are duplicates.
Pure. ``service.producing`` calls it, as do the port and the adapter of producers.
"""
