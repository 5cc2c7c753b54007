"""What makes every promise hold after a crash: sweeps, hints from clients, quarantine."""
