"""What reduces a gradient: a method's messages over a wire, in process or between processes."""
