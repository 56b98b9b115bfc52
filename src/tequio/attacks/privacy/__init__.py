"""What updates and models give away: attacks that only read."""
