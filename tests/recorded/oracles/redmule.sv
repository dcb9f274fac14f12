// A row of RedMulE: K multiply-adds in float16, c first. Combinational.
module top #(parameter int K = 4) (
  input logic [K*16-1:0] a, input logic [K*16-1:0] b, input logic [15:0] c, output logic [15:0] d);
  logic [15:0] part [K+1];
  assign part[0] = c;
  assign d = part[K];
  for (genvar i = 0; i < K; i++) begin : g
    redmule_fma #(.FpFormat(fpnew_pkg::FP16), .NumPipeRegs(0)) f (
      .clk_i(1'b0), .rst_ni(1'b1), .operands_i({part[i], b[i*16 +: 16], a[i*16 +: 16]}), .is_boxed_i(3'b111),
      .rnd_mode_i(fpnew_pkg::RNE), .op_i(fpnew_pkg::FMADD), .op_mod_i(1'b0), .tag_i(1'b0), .aux_i(1'b0),
      .in_valid_i(1'b1), .in_ready_o(), .reg_enable_i(1'b1), .flush_i(1'b0), .result_o(part[i+1]), .status_o(), .extension_bit_o(),
      .tag_o(), .aux_o(), .out_valid_o(), .out_ready_i(1'b1), .busy_o());
  end
endmodule
