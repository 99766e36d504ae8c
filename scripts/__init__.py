"""Programs around the library; README.md lists them."""
