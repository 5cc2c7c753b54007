"""A stand-in for a model: a few plain rules, no key, no network."""
