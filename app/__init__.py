"""The doors (command line, HTTP) and the wiring of all rooms."""
