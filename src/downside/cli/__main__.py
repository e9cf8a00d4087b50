"""`python -m downside.cli`."""

from downside.cli import main

main()
