"""The attempts of one operation: running it again when it was rejected, and doing again only what collided."""
