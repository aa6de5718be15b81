extern "C" void {{ entry }}({{ parameters }}) {
    constexpr DLDataType type = {{ dl }}, fp8 = {kDLFloat8_e4m3fn, 8, 1}, single = {kDLFloat, 32, 1};
    warpsmith::stream = stream;
    warpsmith::Array<2> from(input, type, {tokens, 2 * hidden}), to(output_q, fp8, {tokens, hidden}), scales(output_s, single, {tokens, 1});
    {{ exports[0] }}(from, to, scales);
}
