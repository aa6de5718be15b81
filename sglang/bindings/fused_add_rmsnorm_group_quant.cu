extern "C" void {{ entry }}({{ parameters }}) {
    constexpr DLDataType type = {{ dl }}, fp8 = {kDLFloat8_e4m3fn, 8, 1}, single = {kDLFloat, 32, 1};
    const int64_t hidden = 128 * groups;
    warpsmith::stream = stream;
    warpsmith::Array<2> in(input, type, {tokens, hidden}), sum(residual, type, {tokens, hidden}), to(output_q, fp8, {tokens, hidden});
    warpsmith::Array<2> scales(output_s, single, {tokens, groups});
    warpsmith::Array<1> factors(weight, type, {hidden});
    {{ exports[0] }}(in, sum, to, scales, factors, eps);
}
