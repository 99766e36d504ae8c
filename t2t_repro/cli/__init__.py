"""Command lines: flags, help pages and configuration files."""
