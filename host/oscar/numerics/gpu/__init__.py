"""The quantiser, the steps and the position state on a GPU (the extra `gpu`): the bits of the host's."""
