"""Puts this folder on the path: tests of several layers share what lies here."""
