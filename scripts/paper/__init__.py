"""Tables, claims and reference curves of the paper."""
