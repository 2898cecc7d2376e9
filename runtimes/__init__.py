"""Who makes tokens: local engines behind a worker process, remote endpoints alike."""
