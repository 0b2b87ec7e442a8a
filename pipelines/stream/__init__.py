"""``pipeline stream``: tables that follow a growing export, each event in them exactly once."""
