"""Running a coding agent against a server of ours."""
