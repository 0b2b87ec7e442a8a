"""A cluster in small steps, on which four ways to balance it are compared. Not shipped."""
