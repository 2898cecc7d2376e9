"""The HTTP dialects, one file each: a thin translation to the one internal request."""
