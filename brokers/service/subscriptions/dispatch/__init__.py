"""The ways to hand out entries: Exclusive and Failover, Shared, Key_Shared.
Each obeys ``dispatcher``. Only the subscription calls it.
"""
