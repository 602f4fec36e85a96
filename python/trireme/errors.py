class ReadError(Exception):
    """A file is missing, damaged, encrypted, or not what it should be; the message names it."""
