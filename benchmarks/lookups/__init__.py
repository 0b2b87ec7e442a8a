"""What lookups cost, warm and cold, and whether they keep their objective."""
