"""The tools that come with Roundelay; off unless named."""
