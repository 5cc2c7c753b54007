"""What one worker process is: its lease, identity, clock, connections and logs."""
