"""What tests read of traces and alert rules."""
