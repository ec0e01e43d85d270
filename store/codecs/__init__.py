"""The codec chains and the stream coders under them."""
