"""`python -m trainparity`."""

from trainparity.cli import main

main()
