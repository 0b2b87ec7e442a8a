"""What a whole cluster costs, idle and at work, and whether every promise about speed is kept."""
