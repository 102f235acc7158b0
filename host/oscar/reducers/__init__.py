"""The reducers: they send a method's messages over a wire, in process or between processes."""
