"""Proofs that an aggregate is the sum of what was sent, and a record of them that cannot be changed unnoticed."""
