"""From documents to the few passages a question needs: parse, split, embed, search, select."""
