// One ExSdotp: two products of float16 and c in float32. Combinational.
module top (input logic [31:0] a, input logic [31:0] b, input logic [31:0] c, output logic [31:0] d);
  fpnew_sdotp_multi #(.SrcDotpFpFmtConfig(6'b001010), .DstDotpFpFmtConfig(6'b100000), .NumPipeRegs(0)) f (
    .clk_i(1'b0), .rst_ni(1'b1), .sdotp_hart_id_i('0),
    .operand_a_i({16'hffff, a[15:0]}), .operand_b_i(b[15:0]), .operand_c_i({16'hffff, a[31:16]}), .operand_d_i(b[31:16]), .dst_operands_i(c),
    .is_boxed_i('1), .rnd_mode_i(fpnew_pkg::RNE), .op_i(fpnew_pkg::SDOTP), .op_mod_i(1'b0),
    .src_fmt_i(fpnew_pkg::FP16), .dst_fmt_i(fpnew_pkg::FP32), .tag_i(1'b0), .mask_i(1'b1), .aux_i(1'b0), .in_valid_i(1'b1), .in_ready_o(), .flush_i(1'b0), .result_o(d),
    .status_o(), .extension_bit_o(), .tag_o(), .mask_o(), .aux_o(), .out_valid_o(), .out_ready_i(1'b1), .busy_o());
endmodule
