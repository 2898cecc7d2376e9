"""Where a request goes: this machine or a checked endpoint."""
