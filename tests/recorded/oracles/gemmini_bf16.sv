// A column of Gemmini's mesh and its accumulator, wired as Arithmetic.scala does (mac and +), of Berkeley HardFloat. Combinational.
module mac #(parameter int E = 8, parameter int S = 8) (input logic [E+S-1:0] a, input logic [E+S-1:0] b, input logic [E+S-1:0] c, output logic [E+S-1:0] d);
  logic [E+S:0] ra, rb, rc, rd;
  fNToRecFN #(E, S) ia (a, ra);
  fNToRecFN #(E, S) ib (b, rb);
  fNToRecFN #(E, S) ic (c, rc);
  mulAddRecFN #(.expWidth(E), .sigWidth(S)) m (.control(1'b1), .op(2'b0), .a(ra), .b(rb), .c(rc), .roundingMode(3'b0), .out(rd), .exceptionFlags());
  recFNToFN #(E, S) o (rd, d);
endmodule
module top #(parameter int K = 8) (input logic [K*16-1:0] a, input logic [K*16-1:0] b, input logic [31:0] c, output logic [31:0] d);
  logic [15:0] part [K+1];
  assign part[0] = '0;
  for (genvar i = 0; i < K; i++) begin : g
    mac m (a[i*16 +: 16], b[i*16 +: 16], part[i], part[i+1]);
  end
  mac #(8, 24) add ({part[K], 16'h0}, 32'h3f800000, c, d);
endmodule
