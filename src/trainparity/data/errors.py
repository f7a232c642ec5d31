"""What can go wrong with data, said so that a person can mend it."""

from trainparity.records.base import RecordError


class DataError(RecordError):
    """A dataset that can't be fetched, read or trusted; the message names the file or address and what to do."""
