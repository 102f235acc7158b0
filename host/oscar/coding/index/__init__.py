import numpy as np

INDEX_CODECS = {"coo": 0, "gaps": 0, "bitmap": 0}


class _C:
    def encode(self, p, size):
        return np.ascontiguousarray(p, "<u4").view(np.uint8)

    def decode(self, s, size):
        return s.view("<u4").astype(np.int64)


def make_index(name):
    return _C()
