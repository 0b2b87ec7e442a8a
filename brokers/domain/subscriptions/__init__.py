"""The rules of subscriptions: cursors, redelivery, delay, and which consumer gets an entry.
Pure. ``service.subscriptions`` calls it; a cursor's stored form is kept for ever.
"""
