"""The private parts of the client: programs that decide, and runners that do what they ask for."""
