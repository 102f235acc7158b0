"""A barrel unit: decoder and encoder, and what they count (docs/develop/engine.md)."""

from myhdl import block

from oscar_hdl.coder.decode.barrel_decoder import barrel_decoder
from oscar_hdl.coder.decode.ports import CodedPosition, CodedSums, DecoderJob, FeedPort
from oscar_hdl.coder.encode.barrel_encoder import barrel_encoder
from oscar_hdl.coder.encode.ports import CodedSource, DrainPort, EncoderJob
from oscar_hdl.coder.ports import BANKS, CountChain, TableWrites
from oscar_hdl.coder.unit.ports import CountedLanes
from oscar_hdl.coder.unit.unit_counts import unit_counts
from oscar_hdl.streams.bundles import Bundle, Stream, bit, word
from oscar_hdl.streams.copied import copied_fields
from oscar_hdl.streams.passed_on import next_phase, next_reset


class Decoding:
    """What a unit decodes with: a job, bytes, and the rows of its bank."""

    def __init__(self, position: CodedPosition, sums: CodedSums) -> None:
        self.job, self.feed, self.position, self.sums = DecoderJob(), FeedPort(), position, sums


class Encoding:
    """What a unit encodes with: a job, where its bytes go, and the rows of its bank."""

    def __init__(self, source: CodedSource) -> None:
        self.job, self.drain, self.bytes = EncoderJob(), DrainPort(), Stream(128, keep=16)
        self.source = source


class Link(Bundle):
    """What passes from unit to unit: phase, reset, tables, and counts on their way to what learns."""

    phase, reset = word(4), bit()
    decoder_tables, encoder_tables = TableWrites(), TableWrites()
    decoder_counts, encoder_counts = CountChain(), CountChain()


@block
def barrel_unit(
    clk, rst, decoding: Decoding, encoding: Encoding, before: Link, after: Link, *, banks: int = BANKS
):
    """Decode and encode side by side, eight blocks each.

    before, after: what all units need comes from the unit before and goes to the one after. Phases are equal;
    tables pass a clock later, counts two. rst resets all units at once, and a reset ends two clocks behind
    that of the unit before. banks: of tables and counts, 2 or 4.
    """
    decoded, encoded = CountedLanes(), CountedLanes()
    decode_phase, decode_rst = word(4), bit()
    encode_phase, encode_rst = after.phase, after.reset
    return (
        next_phase(clk, before.phase, decode_phase),
        next_phase(clk, decode_phase, encode_phase),
        next_reset(clk, rst, before.reset, decode_rst),
        next_reset(clk, rst, decode_rst, encode_rst),
        # A clock later, so that no register drives all units.
        copied_fields(clk, before.decoder_tables, after.decoder_tables),
        copied_fields(clk, before.encoder_tables, after.encoder_tables),
        barrel_decoder(
            clk, decode_rst, decode_phase, decoding.job, after.decoder_tables, decoding.feed,
            decoding.position, decoding.sums, decoded, banks=banks,
        ),
        unit_counts(clk, decode_rst, decoded, before.decoder_counts, after.decoder_counts, banks=banks),
        barrel_encoder(
            clk, encode_rst, encode_phase, encoding.job, after.encoder_tables, encoding.source,
            encoded, encoding.drain, encoding.bytes,
        ),
        unit_counts(clk, encode_rst, encoded, before.encoder_counts, after.encoder_counts, banks=banks),
    )  # fmt: skip
