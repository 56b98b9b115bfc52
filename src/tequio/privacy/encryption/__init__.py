"""Additive homomorphic schemes behind one interface: Paillier, CKKS, and a twin of both without encryption."""
