"""The dispatchers: Exclusive and Failover, Shared, Key_Shared.
Each implements ``dispatcher``. Only the subscription calls them.
"""
