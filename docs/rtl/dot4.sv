// d = a[0]*b[0] + a[1]*b[1] + a[2]*b[2] + a[3]*b[3] + c, with factors in float16, c and d in float32.
//
// Products are exact. The five terms are aligned to the largest exponent, cut F bits below it, added
// exactly, and rounded once, to nearest even: the rule of dot4.toml.
//
// BUG plants one of 22 faults, to show that vectors find them; 0 plants none.
module dot4 #(
    parameter integer F = 26,
    parameter integer BUG = 0
) (
    input  logic [63:0] a,  // element 0 in the lowest bits
    input  logic [63:0] b,
    input  logic [31:0] c,
    output logic [31:0] d
);
    localparam integer W = BUG == 1 ? F - 1 : BUG == 2 ? F + 1 : F;  // 1, 2: window off by one
    localparam integer TERM = W + 2;  // bits of a term: a product is below 4
    localparam integer SUM = BUG == 3 ? TERM + 1 : TERM + 4;  // 3: no bits for carries
    localparam [31:0] NAN = 32'h7fc00000;

    logic [15:0] x, y;
    logic nan, plus, minus;
    logic sign[0:4];
    logic zero[0:4];
    integer exponent[0:4];
    logic [TERM-1:0] term[0:4];
    logic [TERM-1:0] kept;
    logic signed [SUM-1:0] sum;
    logic [SUM-1:0] size, whole, rest, half;
    logic [31:0] rounded;
    integer i, top, apart, leading, shift;

    // The significand of a float16, with its hidden bit, and its exponent.
    function automatic [10:0] significand16(input [14:0] v);
        significand16 = {v[14:10] != 0, v[9:0]};
        if (BUG == 4 && v[14:10] == 0) significand16 = 0;  // 4: subnormal operands are zeros
    endfunction

    function automatic integer exponent16(input [4:0] field);
        // 5: subnormal numbers are half as large
        exponent16 = field == 0 ? (BUG == 5 ? -15 : -14) : {27'b0, field} - 15;
    endfunction

    function automatic is_nan16(input [14:0] v);
        is_nan16 = v[14:10] == 31 && v[9:0] != 0 && BUG != 6;  // 6: a NaN is an infinity
    endfunction

    function automatic is_inf16(input [14:0] v);
        is_inf16 = v[14:10] == 31 && !is_nan16(v);
    endfunction

    always @(a or b or c) begin
        nan = c[30:23] == 255 && c[22:0] != 0;
        // 7: the largest numbers of c are infinities
        plus = c[30:23] >= (BUG == 7 ? 254 : 255) && !nan && !c[31];
        minus = c[30:23] >= (BUG == 7 ? 254 : 255) && !nan && c[31];
        for (i = 0; i < 4; i = i + 1) begin
            x = a[16*i+:16];
            y = b[16*i+:16];
            if (BUG == 8 && i == 1) y = b[16*2+:16];  // 8: operands are swapped
            if (BUG == 8 && i == 2) y = b[16*1+:16];
            sign[i] = x[15] ^ y[15];
            exponent[i] = exponent16(x[14:10]) + exponent16(y[14:10]);
            term[i] = {{TERM - 11{1'b0}}, significand16(x[14:0])};
            term[i] = term[i] * {{TERM - 11{1'b0}}, significand16(y[14:0])};
            zero[i] = term[i] == 0;
            // 9: exponents of products are normalised before the alignment
            if (BUG == 9 && term[i][21]) exponent[i] = exponent[i] + 1;
            if (is_nan16(x[14:0]) || is_nan16(y[14:0])) nan = 1;
            else if (is_inf16(x[14:0]) || is_inf16(y[14:0])) begin
                // 10: zero times infinity is an infinity
                if (BUG != 10 && (x[14:0] == 0 || y[14:0] == 0)) nan = 1;
                else if (sign[i]) minus = 1;
                else plus = 1;
            end
            if (BUG == 9 && term[i][21]) term[i] = term[i] << (W - 21);
            else term[i] = term[i] << (W - 20);
        end
        sign[4] = c[31];
        // 11: a subnormal c has the exponent of its field
        exponent[4] = c[30:23] == 0 ? (BUG == 11 ? -127 : -126) : {24'b0, c[30:23]} - 127;
        term[4] = {{TERM - 24{1'b0}}, c[30:23] != 0, c[22:0]} << (W - 23);
        zero[4] = term[4] == 0;

        top = -1000;
        for (i = 0; i < 5; i = i + 1) begin
            // 12: zeros count in the largest exponent; 13: c does not
            if ((!zero[i] || BUG == 12) && !(i == 4 && BUG == 13 && top > -1000))
                if (exponent[i] > top) top = exponent[i];
        end

        sum = 0;
        for (i = 0; i < 5; i = i + 1) begin
            apart = top - exponent[i];
            if (BUG == 14) apart = apart & 31;  // 14: a shift by the low bits of the distance
            kept = apart >= TERM ? 0 : apart < 0 ? term[i] << -apart : term[i] >> apart;
            // 15: negative terms are rounded down, as an arithmetic shift does
            if (BUG == 15 && sign[i] && apart > 0 && (kept == 0 ? !zero[i] : kept << apart != term[i]))
                kept = kept + 1;
            if (sign[i]) sum = sum - $signed({{SUM - TERM{1'b0}}, kept});
            else sum = sum + $signed({{SUM - TERM{1'b0}}, kept});
        end

        size = sum < 0 ? -sum : sum;
        leading = 0;
        for (i = 0; i < SUM; i = i + 1) if (size[i]) leading = i;
        // Bits below the last place of the result, which is 2**-149 or above.
        shift = leading - 23;
        // 16: results are never subnormal
        if (top - W + leading < -126 && BUG != 16) shift = W - 149 - top;
        whole = shift > 0 ? size >> shift : size << -shift;
        rest = shift > 0 ? size - (whole << shift) : 0;
        half = shift > 0 ? {{SUM - 1{1'b0}}, 1'b1} << (shift - 1) : 1;
        if (BUG == 17) rest = rest & half;  // 17: the sticky bit is lost
        // 18: toward zero; 19: ties away from zero
        if (BUG != 18 && (rest > half || (rest == half && (whole[0] || BUG == 19)))) whole = whole + 1;
        // 20: a carry of the rounding is lost
        if (BUG == 20 && whole[24]) whole = {{SUM - 24{1'b0}}, 24'h800000};
        // The hidden bit adds 1 to the exponent's field, and so does a carry.
        rounded = {{32 - 25{1'b0}}, whole[24:0]};
        if (shift == leading - 23) rounded = rounded + ((top - W + leading + 126) << 23);

        d = {sum < 0, rounded[30:0]};
        if (size == 0) d = BUG == 21 ? {c[31], 31'b0} : 0;  // 21: a zero has the sign of c
        if (plus) d = 32'h7f800000;
        if (minus) d = 32'hff800000;
        if (nan || (plus && minus && BUG != 22)) d = NAN;  // 22: infinities cancel to one of them
    end
endmodule
