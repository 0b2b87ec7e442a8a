"""What must hold in a simulated cluster, checked while it runs and at its end."""
