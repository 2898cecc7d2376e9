"""What `runner bench` does: fixed workloads, a client that keeps the time, figures, a report."""
