"""The demo shop: its rooms, its gateway, its launcher and its containers, as a visitor meets them."""
