"""The studies that `tequio reproduce` runs, installed beside tequio as data; README.md says how to write one."""
