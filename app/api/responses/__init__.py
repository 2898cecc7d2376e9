"""OpenAI's Responses dialect: items in, items out, and a memory of the last hour."""
