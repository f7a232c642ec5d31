"""The command `trainparity`, also as `python -m trainparity`."""

from trainparity.exits import stopped_in_a_line


def main() -> None:
    """Import the command line and run it: a signal ends either with a message."""
    with stopped_in_a_line():
        from trainparity.cli import main as run

        run()


if __name__ == "__main__":
    main()
