"""How families of models write reasoning and tool calls, read as the text comes."""
