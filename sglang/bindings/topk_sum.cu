extern "C" void {{ entry }}({{ parameters }}) {
    constexpr DLDataType type = {{ dl }};
    warpsmith::stream = stream;
    warpsmith::Array<3> in(input, type, {tokens, topk, hidden});
    warpsmith::Array<2> to(out, type, {tokens, hidden});
    {{ exports[0] }}(in, to);
}
