"""What happened, as its clients saw it, and the checks that judge it. Pure."""
