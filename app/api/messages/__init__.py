"""Anthropic's Messages dialect (https://docs.anthropic.com/en/api/messages)."""
