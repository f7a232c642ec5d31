"""`python -m trainparity.cli`."""

from trainparity.cli import main

main()
