"""The MCP server (``sawtooth mcp``), its tools, and the skill that teaches an agent to use Sawtooth."""
