"""What an AllReduce costs on a given link: replay, scale, prediction and timelines."""
