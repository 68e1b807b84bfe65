"""Who may ask, for what, and how much: access tokens and rights, browsers, limits."""
