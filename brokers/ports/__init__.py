"""What the broker needs from outside, one module per subject."""
