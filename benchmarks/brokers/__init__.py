"""What brokers cost: ledgers, dispatch, drains, and the loss of one."""
