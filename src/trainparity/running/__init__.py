"""`trainparity run` and `ab`: anybody's command, recorded, with its processes, folders and revisions."""
