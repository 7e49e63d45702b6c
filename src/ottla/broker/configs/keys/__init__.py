"""The keys of a broker's config, by area. A list named `…_DORMANT` holds keys that are accepted and have no effect."""
