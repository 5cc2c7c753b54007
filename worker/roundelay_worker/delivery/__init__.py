"""From the database to readers: durable updates, deltas and the answer."""
