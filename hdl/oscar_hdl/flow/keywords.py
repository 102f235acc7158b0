"""Words that VHDL and Verilog do not take for names, though MyHDL does."""

# Words of Verilog that MyHDL takes for names (it writes none of them itself), and yosys too; others do not.
VERILOG_KEYWORDS = (
    "automatic buf cell config deassign design disable edge endconfig endprimitive endspecify endtable "
    "event force fork generate genvar highz0 highz1 incdir include instance join large liblist library "
    "macromodule medium nand nor notif0 notif1 primitive pull0 pull1 pulldown pullup rcmos real "
    "realtime release repeat rnmos rpmos rtran scalared small specify specparam strong0 strong1 supply0 "
    "supply1 table task time tran tri tri0 tri1 triand trior unsigned use vectored wait wand weak0 weak1 wor "
    "xnor xor "
    # and of SystemVerilog, as which some tools read every file
    "accept_on alias always_comb always_ff always_latch assert assume before bind bins binsof bit break byte "
    "chandle checker class clocking const constraint context continue cover covergroup coverpoint cross dist "
    "do enum eventually expect export extends extern final first_match foreach forkjoin global iff "
    "ignore_bins illegal_bins implements implies import inside int interconnect interface intersect let "
    "local logic longint matches modport nettype new nexttime null package packed priority program property "
    "protected pure rand randc randcase randsequence ref reject_on restrict return sequence shortint "
    "shortreal soft solve static string strong struct super tagged this throughout timeprecision timeunit "
    "type typedef union unique unique0 until untyped var virtual void wait_order weak wildcard with within"
)
# The same of VHDL-2008, some of which it took up after MyHDL was written.
VHDL_KEYWORDS = (
    "access after alias assume block body buffer bus component configuration context cover default "
    "disconnect fairness file force generic group guarded impure inertial label linkage literal map nand new "
    "nor on open parameter postponed property protected pure record register reject release restrict rol ror "
    "select sequence shared strong subtype transport unaffected units until vmode vprop vunit with xnor"
)
# Words that MyHDL knows, too, and names of the libraries.
_VHDL_MORE = (
    "and all architecture array attribute begin boolean bool case constant downto else elsif end entity exit "
    "false for function generate if ieee in inout integer is loop mod natural next not null of or others out "
    "port process range rem resize return rising_edge severity shift_left shift_right signal signed sla sll "
    "sra srl std std_logic std_logic_vector stdl string subtype then time to to_integer to_signed "
    "to_unsigned true type unsigned variable wait when while work"
)
_VERILOG_MORE = (
    "always and assign at_start begin bufif0 bufif1 case casex casez default defparam else end endcase "
    "endfunction endgenerate endmodule endtask for function if ifnone initial inout input integer localparam "
    "module negedge not output or parameter posedge reg signed timescale wire while"
)
KEYWORDS = {"vhdl": VHDL_KEYWORDS.split(), "verilog": VERILOG_KEYWORDS.split()}
# What no name of an entity may be, in either language.
TAKEN = frozenset(f"{VHDL_KEYWORDS} {_VHDL_MORE} {VERILOG_KEYWORDS} {_VERILOG_MORE}".split())
