"""Tables of cases as text."""


def read_cases(text) -> dict[str, str]:
    """Read commands, each above its message, which is indented."""
    cases, command = {}, ""
    for line in text.strip().splitlines():
        if line.startswith(" "):
            cases[command] = f"{cases[command]} {line.strip()}".strip()
        else:
            command = line
            assert command not in cases, command
            cases[command] = ""
    return cases
