"""Real worker processes on real services, and the hands that stop, freeze and kill them."""
