"""Keeping what parties send private: schemes, mechanisms, accounting."""
