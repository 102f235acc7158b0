"""What an AllReduce costs on a given link: recurrence, replay, scale, prediction and timelines."""
