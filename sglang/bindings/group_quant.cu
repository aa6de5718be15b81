extern "C" void {{ entry }}({{ parameters }}) {
    constexpr DLDataType type = {{ dl }}, fp8 = {kDLFloat8_e4m3fn, 8, 1}, single = {kDLFloat, 32, 1};
    warpsmith::stream = stream;
    warpsmith::Array<2> from(input, type, {tokens, {{ values.width }} * groups}), to(output_q, fp8, {tokens, 128 * groups});
    warpsmith::Array<2> scales(output_s, single, {tokens, groups});
    {{ exports[0] }}(from, to, scales);
}
