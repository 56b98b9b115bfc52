"""`python -m tequio` is the `tequio` command."""

from tequio.cli.main import main

main()
