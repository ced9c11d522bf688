"""`request.team`: the team a signed-in person works in."""
