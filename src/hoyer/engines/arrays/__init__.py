"""Plain operations of one array namespace: the search, and Algorithm 3."""
