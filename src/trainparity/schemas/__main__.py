"""`python -m trainparity.schemas`."""

from trainparity.schemas import write

write()
