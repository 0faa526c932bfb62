"""500 declared clusters with 5,000 nodes, held by one `remuda up`: what that costs while nothing happens."""
