"""`python -m downside`: the command line where its script is not on the path."""

from downside.cli import main

if __name__ == "__main__":
    main()
