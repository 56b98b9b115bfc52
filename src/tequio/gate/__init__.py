"""The one gate at a party: what its owner allows, what a run asks, and what leaves."""
