"""From blocks of encoders to a frame."""
