"""The sum that ends a frame."""
