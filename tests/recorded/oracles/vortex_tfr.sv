// Eight products of float16 and c by the fused dot product of the TFR unit: four stages of registers.
module top (input logic clk, input logic [127:0] a, input logic [127:0] b, input logic [31:0] c, output logic [31:0] d);
  VX_tcu_fedp_tfr #(.N(4), .LATENCY(4)) f (
    .clk(clk), .reset(1'b0), .enable(1'b1), .vld_mask('1), .fmt_s(4'(VX_tcu_pkg::TCU_FP16_ID)), .fmt_d(4'd0),
    .a_row(a), .b_col(b), .c_val(c), .d_val(d));
endmodule
