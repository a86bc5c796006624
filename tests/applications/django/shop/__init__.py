"""A shop: an application of Django's with every kind of key."""
