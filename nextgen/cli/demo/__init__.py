"""``nextgen demo``: a cluster under steady load loses its leaders, and nobody is told wrong."""
