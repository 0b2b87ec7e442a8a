"""Changes of owner: moves, handovers, evacuations, rebalancing and unassignment.

The shard leader starts it; every change is finished when broker and watches have it.
"""
