"""Ollama's dialect, `/api/*`, for terminal clients and editors that speak it."""
