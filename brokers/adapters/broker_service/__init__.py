"""``BrokerService`` over gRPC: open topics, acknowledgements, the broker's assignments and status.
Tools and auditors call it over the wire. ``bootstrap`` alone imports it.
"""
